"""An index that survives: codes on disk and in memory, exact search, and what a distance is worth."""

from proxyhash.index.base import Index
from proxyhash.index.calibration import Calibration, calibrate
from proxyhash.index.results import Added, Info, Match, Matches

__all__ = ["Added", "Calibration", "Index", "Info", "Match", "Matches", "calibrate"]
