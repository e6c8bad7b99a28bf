"""Data sets by name or from a folder, protocols that split them, and transforms.

Names are imported lazily, so a search that decodes one image does not load the readers of data sets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxyhash.data.catalog import DatasetInfo, get_dataset_info, list_datasets
    from proxyhash.data.dataset import Dataset
    from proxyhash.data.images import ArrayImages, FileImages
    from proxyhash.data.load import DataLike, load_dataset
    from proxyhash.data.protocols import Split, default_protocol, get_protocol, list_protocols, make_split
    from proxyhash.data.readers.hugging_face import from_hugging_face
    from proxyhash.data.readers.map_style import from_torch
    from proxyhash.data.skipped import SkippedItems
    from proxyhash.data.torch_dataset import TorchDataset
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

_MODULES = {
    "ArrayImages": "proxyhash.data.images",
    "ClassLabels": "proxyhash.labels",
    "DataLike": "proxyhash.data.load",
    "Dataset": "proxyhash.data.dataset",
    "DatasetInfo": "proxyhash.data.catalog",
    "FileImages": "proxyhash.data.images",
    "SkippedItems": "proxyhash.data.skipped",
    "TagLabels": "proxyhash.labels",
    "TorchDataset": "proxyhash.data.torch_dataset",
    "from_hugging_face": "proxyhash.data.readers.hugging_face",
    "from_torch": "proxyhash.data.readers.map_style",
    "get_dataset_info": "proxyhash.data.catalog",
    "list_datasets": "proxyhash.data.catalog",
    "load_dataset": "proxyhash.data.load",
}  # the others are in proxyhash.data.protocols


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "proxyhash.data.protocols")), name)
