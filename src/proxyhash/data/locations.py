"""Locations of the files of named data sets."""

import os
from pathlib import Path

from proxyhash.data.catalog import DatasetInfo
from proxyhash.data.download import download, extract_archive
from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError
from proxyhash.utils.paths import cache_root
from proxyhash.utils.progress import Progress, no_progress


def data_folders(data_dir: Path | None = None) -> list[Path]:
    """Return the folders to search, in order: `data_dir`, `PROXYHASH_DATA`, the cache folder."""
    named = (data_dir, Path(os.environ["PROXYHASH_DATA"]) if os.environ.get("PROXYHASH_DATA") else None)
    return [folder for folder in named if folder is not None] + [cache_root() / "data"]


def find_folder(record: DatasetInfo, data_dir: Path | None = None) -> Path | None:
    """Return the data set's folder if it is on this machine."""
    found = (folder / record.folder for folder in data_folders(data_dir))
    return next((folder for folder in found if folder.is_dir()), None)


def find_archive(record: DatasetInfo, data_dir: Path | None = None) -> Path | None:
    """Return the data set's archive if it is on this machine, not yet unpacked."""
    if record.archive is None:
        return None
    found = (folder / record.archive.name for folder in data_folders(data_dir))
    return next((path for path in found if path.is_file()), None)


def fetch_folder(
    record: DatasetInfo, data_dir: Path | None = None, *, fetch: bool = True, progress: Progress = no_progress
) -> Path:
    """Return the data set's folder, unpacking or downloading its archive if it is missing."""
    folder = find_folder(record, data_dir)
    if folder is not None:
        return folder
    archive = find_archive(record, data_dir)
    if archive is None:
        if record.archive is None or not fetch:
            raise InputError(_put_it_there(record, data_dir))
        archive = data_folders(data_dir)[0] / record.archive.name
        try:
            download(record.archive, archive, progress)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; {_put_it_there(record, data_dir)}") from error
    return _unpacked(record, archive, progress)


def check_files(record: DatasetInfo, folder: Path, progress: Progress = no_progress) -> None:
    """Compare every official file with its published checksum."""
    for number, (name, expected) in enumerate(record.files):
        progress("verifying checksums", number / len(record.files))
        path = folder / name
        if not path.is_file():
            raise InputError(f"{folder} is incomplete: {name} is missing; it must hold {record.layout}.")
        if checksum(path, "md5") != expected:
            raise InputError(f"{path} is not the official file of {record.name}: its checksum differs.")
    progress("verifying checksums", 1.0)


def _unpacked(record: DatasetInfo, archive: Path, progress: Progress) -> Path:
    assert record.archive is not None
    if not record.archive.matches(archive):
        raise InputError(f"{archive} is not the official archive of {record.name}: its checksum differs; delete it.")
    target = archive.parent / record.folder
    extract_archive(archive, target, progress)
    return target


def _put_it_there(record: DatasetInfo, data_dir: Path | None) -> str:
    folder = data_folders(data_dir)[0] / record.folder
    looked = ", ".join(str(path) for path in data_folders(data_dir))
    missing = f"{record.name} was not found in {looked}"
    if record.archive is None:
        return f"{missing}: get it from {record.homepage} and put {record.layout} into {folder}."
    return f"{missing}: put {record.archive.url} there, as it is, or its {record.layout} into {folder}."
