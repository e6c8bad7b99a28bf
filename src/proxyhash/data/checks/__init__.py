"""What can be wrong with a data set and a protocol, found before anything is trained."""

from proxyhash.data.checks.check import check_dataset
from proxyhash.data.checks.report import DatasetReport, Finding

__all__ = ["DatasetReport", "Finding", "check_dataset"]
