"""Readers of CIFAR, ILSVRC-2012 and scikit-learn's digits."""

from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.data.catalog import DatasetInfo
from proxyhash.data.dataset import SPLITS, Dataset
from proxyhash.data.images import ArrayImages
from proxyhash.data.locations import check_files
from proxyhash.data.readers.folder import load_folder
from proxyhash.data.readers.listing import list_subfolders
from proxyhash.data.safe_pickle import load_pickle
from proxyhash.labels import ClassLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def load_cifar(info: DatasetInfo, folder: Path, progress: Progress = no_progress) -> Dataset:
    """Read the official files after verifying their checksums: the training set first, then the queries."""
    check_files(info, folder, progress)
    names = [name for name, _ in info.files]
    meta = load_pickle(folder / next(name for name in names if "meta" in name))
    batches = [name for name in names if "meta" not in name]
    tables = [load_pickle(folder / name) for name in batches]
    pixels = np.concatenate([_pixels(table, folder / name) for table, name in zip(tables, batches, strict=True)])
    labels = np.concatenate([_first(table, folder, "fine_labels", "labels") for table in tables]).astype(np.int64)
    splits = np.repeat(
        [SPLITS.index("query" if "test" in name else "train") for name in batches], [len(t["data"]) for t in tables]
    )
    class_names = tuple(str(name) for name in _first(meta, folder, "fine_label_names", "label_names"))
    return Dataset(
        info.name, ArrayImages(pixels, info.name), ClassLabels(labels, class_names), splits=splits.astype(np.int8)
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


def load_ilsvrc(info: DatasetInfo, folder: Path, *, strict: bool = False, progress: Progress = no_progress) -> Dataset:
    """List the images; classes are the WordNet names of the folders, in their order."""
    for split in ("train", "val"):
        if not (folder / split).is_dir():
            raise InputError(f"{folder} has no folder {split}; it must hold {info.layout}.")
        if (folder / split).is_symlink():
            raise InputError(
                f"{folder / split} is a link, and these are not followed inside a data set; link {folder} instead."
            )
    if not list_subfolders(folder, "val"):
        raise InputError(f"{folder / 'val'} has no class folders; sort its images into val/n01440764/ and so on.")
    classes = {split: set(list_subfolders(folder, split)) for split in ("train", "val")}
    if classes["train"] != classes["val"]:
        odd = sorted(classes["train"] ^ classes["val"])
        raise InputError(f"{folder} has {len(odd)} classes in only one of train and val, the first is {odd[0]}.")
    # Beside them there may be the unlabeled test images, a development kit and other things.
    return load_folder(folder, strict=strict, name=info.name, only=("train", "val"), progress=progress)


def load_digits() -> Dataset:
    """Return 1,797 images of 8 x 8 pixels; their 17 shades of gray become bytes in three equal channels."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise InputError("The digits come with scikit-learn: pip install 'proxyhash[digits]'.") from None
    digits = load()
    gray = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = ClassLabels(digits.target.astype(np.int64), tuple(str(name) for name in digits.target_names))
    pixels = np.repeat(gray[..., None], 3, axis=3)
    return Dataset("digits", ArrayImages(pixels, "digits"), labels, flip_safe=False)
