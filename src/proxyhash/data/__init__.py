"""Data sets by name or from a folder, protocols that split them, and transforms."""

from proxyhash.data.catalog import DatasetInfo, get_dataset_info, list_datasets
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.load import DataLike, as_dataset, load_dataset
from proxyhash.data.protocols import Split, default_protocol, get_protocol, list_protocols, make_split
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels, TagLabels

__all__ = [
    "ArrayImages",
    "ClassLabels",
    "DataLike",
    "Dataset",
    "DatasetInfo",
    "FileImages",
    "SkippedItems",
    "Split",
    "TagLabels",
    "as_dataset",
    "default_protocol",
    "get_dataset_info",
    "get_protocol",
    "list_datasets",
    "list_protocols",
    "load_dataset",
    "make_split",
]
