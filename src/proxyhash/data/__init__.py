"""Data sets by name or from a folder, protocols that cut them, and checks before anything is trained."""

from proxyhash.data.catalog import Record, find_record, list_datasets
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.load import load_dataset
from proxyhash.data.problems import Problems
from proxyhash.data.protocols import Split, default_protocol, find_protocol, list_protocols, make_split

__all__ = [
    "ArrayImages",
    "Dataset",
    "FileImages",
    "Problems",
    "Record",
    "Split",
    "default_protocol",
    "find_protocol",
    "find_record",
    "list_datasets",
    "list_protocols",
    "load_dataset",
    "make_split",
]
