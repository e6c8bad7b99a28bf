"""Export of a data set in memory to a folder of image files."""

import csv
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from proxyhash.data.dataset import NO_SPLIT, SPLITS, Dataset
from proxyhash.data.images import ArrayImages
from proxyhash.utils.atomic_io import atomic_folder
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def write_image_folder(dataset: Dataset, folder: Path, *, enlarge: int = 1, progress: Progress = no_progress) -> int:
    """Write every image as a PNG file, all or none, and return the number of images.

    Images go to folders of their classes, inside folders of their splits if there are any; tags go to a metadata.csv.
    `enlarge` repeats each pixel in both directions.
    """
    if not isinstance(dataset.images, ArrayImages):
        raise InputError(f"{dataset.name} consists of image files already.")
    if folder.exists():
        raise InputError(f"{folder} exists already; name a new folder.")
    places = [_place(dataset, index) for index in range(len(dataset))]
    with atomic_folder(folder) as beside:
        for index, place in enumerate(places):
            path = beside / place
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = dataset.images.read(index).repeat(enlarge, axis=0).repeat(enlarge, axis=1)
            Image.fromarray(np.ascontiguousarray(pixels)).save(path)
            progress("writing images", (index + 1) / len(places))
        if dataset.kind == "tags":
            _write_tags(dataset, places, beside / "metadata.csv")
    return len(places)


def _place(dataset: Dataset, index: int) -> PurePosixPath:
    """Return where an image goes: part/class/name.png, without what is not known."""
    part = int(dataset.splits[index])
    words = [] if part == NO_SPLIT else [str(SPLITS[part])]
    if dataset.kind == "classes":
        words += dataset.labels_of(index)
    for word in words:
        if not word or word.startswith(".") or set(word) & set('/\\:*?"<>|'):
            raise InputError(f"The class {word!r} cannot be the name of a folder.")
    return PurePosixPath(*words, f"{dataset.images.key(index)}.png")


def _write_tags(dataset: Dataset, places: list[PurePosixPath], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("file_name", "tags"))
        table.writerows((place, ";".join(dataset.labels_of(index))) for index, place in enumerate(places))
