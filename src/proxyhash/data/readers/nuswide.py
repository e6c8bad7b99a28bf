"""Reader of NUS-WIDE: its image list, and one file of zeros and ones for each tag."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.catalog import DatasetInfo
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import FileImages
from proxyhash.data.readers.listing import OUTSIDE
from proxyhash.data.readers.metadata import MISSING
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def load_nuswide(info: DatasetInfo, folder: Path, *, strict: bool = False, progress: Progress = no_progress) -> Dataset:
    """Return the images that have one of the most frequent tags (21 of 81), and these tags."""
    listed = [line.replace("\\", "/") for line in _lines(_one_of(info, folder, "ImageList/Imagelist.txt", "Imagelist.txt"))]
    labels = _one_of(info, folder, "Groundtruth/AllLabels", "AllLabels")
    files = sorted(labels.glob("Labels_*.txt"))
    if not files:
        raise InputError(f"{labels} holds no Labels_*.txt; {folder} must hold {info.layout}.")
    tags = np.stack([_flags(path, len(listed)) for path in files], axis=1)
    names = tuple(path.stem.removeprefix("Labels_") for path in files)
    images = _one_of(info, folder, "Flickr", "images", "Images")
    skipped = SkippedItems(strict)
    present, paths = _present(images, listed, np.asarray(tags.any(1)), skipped, progress)
    whole = Dataset(info.name, FileImages(images, paths), TagLabels(tags[present], names), skipped=skipped)
    return whole.with_frequent_tags(min(info.num_classes, len(names)))


def _present(
    images: Path, listed: list[str], tagged: NDArray[np.bool_], skipped: SkippedItems, progress: Progress
) -> tuple[NDArray[np.int64], list[str]]:
    """Return which tagged images are there, and where: in folders as listed, or all in one."""
    flat = not any((images / folder).is_dir() for folder in {name.split("/", 1)[0] for name in listed})
    present, paths = [], []
    for number in np.flatnonzero(tagged):
        progress("looking for images", int(number) / len(listed))
        name = listed[number].rsplit("/", 1)[-1] if flat else listed[number]
        if name.startswith("/") or ".." in name.split("/"):
            skipped.add(OUTSIDE, name)
        elif (images / name).is_file():
            present.append(int(number))
            paths.append(name)
        else:
            skipped.add(MISSING, name)
    progress("looking for images", 1.0)
    if not paths:
        raise InputError(f"{images} holds none of the images in the list.")
    return np.array(present, np.int64), paths


def _one_of(info: DatasetInfo, folder: Path, *candidates: str) -> Path:
    for candidate in candidates:
        if (folder / candidate).exists():
            return folder / candidate
    raise InputError(f"{folder} has no {candidates[0]}; it must hold {info.layout}.")


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text.") from None


def _flags(path: Path, count: int) -> NDArray[np.bool_]:
    lines = _lines(path)
    if len(lines) != count or not set(lines) <= {"0", "1"}:
        raise InputError(f"{path} must hold {count:,} lines of 0 or 1, one for each image in the list.")
    return np.array([line == "1" for line in lines])
