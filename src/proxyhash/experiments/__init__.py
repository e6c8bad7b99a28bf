"""Comparisons: a grid of methods, lengths and seeds, each result a record that says how it came to be."""

from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record, read_records
from proxyhash.experiments.run import run_grid

__all__ = ["Grid", "Record", "read_records", "run_grid"]
