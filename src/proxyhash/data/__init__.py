"""Data sets by name or from a folder, protocols that cut them, and checks before anything is trained."""

from proxyhash.data.catalog import Record, find_record, list_datasets
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.load import load_dataset
from proxyhash.data.protocols import Split, default_protocol, find_protocol, list_protocols, make_split
from proxyhash.data.skipped import Problems
from proxyhash.labels import ClassLabels, TagLabels

__all__ = [
    "ArrayImages",
    "ClassLabels",
    "Dataset",
    "FileImages",
    "Problems",
    "Record",
    "Split",
    "TagLabels",
    "default_protocol",
    "find_protocol",
    "find_record",
    "list_datasets",
    "list_protocols",
    "load_dataset",
    "make_split",
]
