"""Index of binary codes: durable storage, exact search by Hamming distance, and calibrated distances."""

from proxyhash.index.base import Index
from proxyhash.index.calibration import Calibration, calibrate
from proxyhash.index.local.items import Item
from proxyhash.index.results import AddResult, IndexInfo, Match, Matches

__all__ = ["AddResult", "Calibration", "Index", "IndexInfo", "Item", "Match", "Matches", "calibrate"]
