"""The front door: a data set by name or by path."""

import os
from pathlib import Path

from proxyhash.data.catalog import DATASETS, DatasetInfo, get_dataset_info
from proxyhash.data.dataset import Dataset
from proxyhash.data.locations import fetch_folder
from proxyhash.data.readers.cifar import load_cifar
from proxyhash.data.readers.digits import load_digits
from proxyhash.data.readers.folder import load_folder
from proxyhash.data.readers.ilsvrc import load_ilsvrc
from proxyhash.data.readers.metadata import METADATA, load_metadata
from proxyhash.data.readers.nuswide import load_nuswide
from proxyhash.utils.progress import Progress, no_progress


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: Path | None = None,
    strict: bool = False,
    fetch: bool = True,
    progress: Progress = no_progress,
) -> Dataset:
    """Return a data set: one of `list_datasets()`, or a folder of images, with `metadata.csv` or without.

    A string that is a known name is that name, whatever lies beside; `digits/` and a `Path` are always folders.
    A named one is looked for in `data_dir`, in `PROXYHASH_DATA` and in the cache folder, and downloaded if it is in none of
    them and `fetch` allows it. Items that cannot be used are counted in `.problems`, or are an error if `strict`.
    """
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


def _load_named(record: DatasetInfo, data_dir: Path | None, strict: bool, fetch: bool, progress: Progress) -> Dataset:
    if record.name == "digits":
        return load_digits()
    folder = fetch_folder(record, data_dir, fetch=fetch, progress=progress)
    if record.name == "nuswide":
        return load_nuswide(record, folder, strict=strict, progress=progress)
    if record.name == "ilsvrc2012":
        return load_ilsvrc(record, folder, strict=strict, progress=progress)
    return load_cifar(record, folder, progress)
