"""Data sets by name or from a folder, protocols that split them, and transforms."""

from typing import TYPE_CHECKING, Any

from proxyhash.data.catalog import DatasetInfo, get_dataset_info, list_datasets
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.load import load_dataset
from proxyhash.data.protocols import Split, default_protocol, get_protocol, list_protocols, make_split
from proxyhash.data.readers.hugging_face import from_hugging_face
from proxyhash.data.readers.map_style import from_torch
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels, TagLabels

if TYPE_CHECKING:
    from proxyhash.data.torch_dataset import TorchDataset

__all__ = [
    "ArrayImages",
    "ClassLabels",
    "Dataset",
    "DatasetInfo",
    "FileImages",
    "SkippedItems",
    "Split",
    "TagLabels",
    "TorchDataset",
    "default_protocol",
    "from_hugging_face",
    "from_torch",
    "get_dataset_info",
    "get_protocol",
    "list_datasets",
    "list_protocols",
    "load_dataset",
    "make_split",
]


def __getattr__(name: str) -> Any:
    """Import the class that needs torch only when it is used."""
    if name == "TorchDataset":
        from proxyhash.data.torch_dataset import TorchDataset

        return TorchDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
