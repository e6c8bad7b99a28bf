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


def find_folder(info: DatasetInfo, data_dir: Path | None = None) -> Path | None:
    """Return the data set's folder if it is on this machine."""
    found = (folder / info.folder for folder in data_folders(data_dir))
    return next((folder for folder in found if folder.is_dir()), None)


def find_archive(info: DatasetInfo, data_dir: Path | None = None) -> Path | None:
    """Return the data set's archive if it is on this machine, not yet unpacked."""
    if info.archive is None:
        return None
    found = (folder / info.archive.name for folder in data_folders(data_dir))
    return next((path for path in found if path.is_file()), None)


def fetch_folder(
    info: DatasetInfo, data_dir: Path | None = None, *, fetch: bool = True, progress: Progress = no_progress
) -> Path:
    """Return the data set's folder, unpacking or downloading its archive if it is missing."""
    folder = find_folder(info, data_dir)
    if folder is not None:
        return folder
    archive = find_archive(info, data_dir)
    if archive is None:
        if info.archive is None or not fetch:
            raise InputError(_put_it_there(info, data_dir))
        archive = data_folders(data_dir)[0] / info.archive.name
        try:
            download(info.archive, archive, progress)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; {_put_it_there(info, data_dir)}") from error
    return _unpacked(info, archive, progress)


def check_files(info: DatasetInfo, folder: Path, progress: Progress = no_progress) -> None:
    """Compare every official file with its published checksum."""
    for number, (name, expected) in enumerate(info.files):
        progress("verifying checksums", number / len(info.files))
        path = folder / name
        if not path.is_file():
            raise InputError(f"{folder} is incomplete: {name} is missing; it must hold {info.layout}.")
        if checksum(path, "md5") != expected:
            raise InputError(f"{path} is not the official file of {info.name}: its checksum differs.")
    progress("verifying checksums", 1.0)


def _unpacked(info: DatasetInfo, archive: Path, progress: Progress) -> Path:
    assert info.archive is not None
    if not info.archive.matches(archive):
        raise InputError(f"{archive} is not the official archive of {info.name}: its checksum differs; delete it.")
    target = archive.parent / info.folder
    extract_archive(archive, target, progress)
    return target


def _put_it_there(info: DatasetInfo, data_dir: Path | None) -> str:
    folder = data_folders(data_dir)[0] / info.folder
    looked = ", ".join(str(path) for path in data_folders(data_dir))
    missing = f"{info.name} was not found in {looked}"
    if info.archive is None:
        return f"{missing}: get it from {info.homepage} and put {info.layout} into {folder}."
    return f"{missing}: put {info.archive.url} there, as it is, or its {info.layout} into {folder}."
