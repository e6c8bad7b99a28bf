"""CIFAR-10 and CIFAR-100, from the official Python files."""

from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.data.catalog import DatasetInfo
from proxyhash.data.dataset import SPLITS, Dataset
from proxyhash.data.images import ArrayImages
from proxyhash.data.locations import check_files
from proxyhash.data.safe_pickle import load_pickle
from proxyhash.labels import ClassLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def load_cifar(record: DatasetInfo, folder: Path, progress: Progress = no_progress) -> Dataset:
    """Read the files of `record` from `folder`, once their checksums are right: train part first, then the queries."""
    check_files(record, folder, progress)
    names = [name for name, _ in record.files]
    meta = load_pickle(folder / next(name for name in names if "meta" in name))
    batches = [name for name in names if "meta" not in name]
    tables = [load_pickle(folder / name) for name in batches]
    pixels = np.concatenate([_pixels(table, folder / name) for table, name in zip(tables, batches, strict=True)])
    labels = np.concatenate([_first(table, folder, "fine_labels", "labels") for table in tables]).astype(np.int64)
    parts = np.repeat(
        [SPLITS.index("query" if "test" in name else "train") for name in batches], [len(t["data"]) for t in tables]
    )
    class_names = tuple(str(name) for name in _first(meta, folder, "fine_label_names", "label_names"))
    return Dataset(
        record.name, ArrayImages(pixels, record.name), ClassLabels(labels, class_names), splits=parts.astype(np.int8)
    )


def _pixels(table: dict[str, Any], path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return images (n, 32, 32, 3) from rows of 3,072 bytes, channel by channel."""
    rows = table.get("data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3 * 32 * 32:
        raise InputError(f"{path} holds no array `data` of rows of 3,072 bytes.")
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _first(table: dict[str, Any], folder: Path, *keys: str) -> Any:
    for key in keys:
        if key in table:
            return table[key]
    raise InputError(f"The files in {folder} hold no {' or '.join(keys)}.")
