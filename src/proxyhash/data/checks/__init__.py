"""Checks of data sets and protocols before training."""

from proxyhash.data.checks.check import check_dataset
from proxyhash.data.checks.report import DatasetReport, Finding

__all__ = ["DatasetReport", "Finding", "check_dataset"]
