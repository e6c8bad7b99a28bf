"""Checks of data sets and protocols before training."""

from proxyhash.data.checks.check import check_dataset
from proxyhash.data.checks.report import Finding, Report

__all__ = ["Finding", "Report", "check_dataset"]
