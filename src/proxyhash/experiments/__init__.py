"""Experiments: grids of methods, code lengths and seeds, and the records of their results."""

from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record, read_records
from proxyhash.experiments.run import run_grid

__all__ = ["Grid", "Record", "read_records", "run_grid"]
