"""Checks of a data set and of a split, before training."""

from proxyhash.data.checks.check import check_dataset
from proxyhash.data.checks.report import DatasetReport, Finding

__all__ = ["DatasetReport", "Finding", "check_dataset"]
