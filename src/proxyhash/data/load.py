"""Data sets by name or by path."""

import os
from pathlib import Path
from typing import Any

from proxyhash.data.catalog import DATASETS, DatasetInfo, get_dataset_info
from proxyhash.data.dataset import Dataset
from proxyhash.data.locations import fetch_folder
from proxyhash.data.readers.folder import load_folder
from proxyhash.data.readers.hugging_face import from_hugging_face, is_hugging_face
from proxyhash.data.readers.map_style import from_torch
from proxyhash.data.readers.metadata import METADATA, load_metadata
from proxyhash.data.readers.nuswide import load_nuswide
from proxyhash.data.readers.published import load_cifar, load_digits, load_ilsvrc
from proxyhash.utils.progress import Progress, no_progress

DataLike = Dataset | str | Path | Any
"""What functions accept as data: a data set, its name, a folder, or a dataset of torch or of Hugging Face."""


def load_dataset(
    name_or_path: DataLike,
    *,
    data_dir: Path | None = None,
    strict: bool = False,
    fetch: bool = True,
    progress: Progress = no_progress,
) -> Dataset:
    """Return a data set by name, from a folder of images, or from a dataset of torch or of Hugging Face.

    Parameters
    ----------
    name_or_path
        One of `list_datasets()`, or a folder of images with or without a metadata.csv. A known name is never a folder;
        `digits/` and a `Path` always are. Other objects are read by `from_hugging_face` or `from_torch` with their defaults;
        a `Dataset` is returned as it is.
    data_dir
        The first folder to search for a named data set; then `PROXYHASH_DATA` and the cache folder.
    strict
        Raise at the first item that cannot be used, instead of counting it in `Dataset.skipped`.
    fetch
        Download a named data set that is not found.
    progress
        Called with the share of the work that is done.

    Raises
    ------
    InputError
        If there is no such data set or folder, or if its files are damaged.

    Examples
    --------
    >>> digits = load_dataset("digits")
    >>> len(digits), digits.kind, len(digits.class_names)
    (1797, 'classes', 10)
    """
    if isinstance(name_or_path, Dataset):
        return name_or_path
    if is_hugging_face(name_or_path):
        return from_hugging_face(name_or_path, strict=strict)
    if not isinstance(name_or_path, (str, os.PathLike)):
        return from_torch(name_or_path, strict=strict, progress=progress)
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in DATASETS:
        return _load_named(DATASETS[name], data_dir, strict, fetch, progress)
    path = Path(name_or_path).expanduser()
    # Path.exists and Path.is_file raise for names that are too long.
    if not os.path.exists(path) and len(path.parts) == 1 and isinstance(name_or_path, str):  # noqa: PTH110
        get_dataset_info(name)
    if os.path.isfile(path / METADATA):  # noqa: PTH113
        return load_metadata(path, strict=strict, progress=progress)
    return load_folder(path, strict=strict, progress=progress)


def _load_named(info: DatasetInfo, data_dir: Path | None, strict: bool, fetch: bool, progress: Progress) -> Dataset:
    if info.name == "digits":
        return load_digits()
    folder = fetch_folder(info, data_dir, fetch=fetch, progress=progress)
    if info.name == "nuswide":
        return load_nuswide(info, folder, strict=strict, progress=progress)
    if info.name == "ilsvrc2012":
        return load_ilsvrc(info, folder, strict=strict, progress=progress)
    return load_cifar(info, folder, progress)
