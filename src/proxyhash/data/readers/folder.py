"""Reader of folders: `root/class/*.jpg`, `root/{train,query,database}/class/*`, or `root/*.jpg` without labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proxyhash.data.dataset import NO_SPLIT, SPLITS, Dataset, SplitName
from proxyhash.data.images import FileImages
from proxyhash.data.readers.listing import IGNORED, LINK_PROBLEMS, dataset_name, list_images, list_subfolders, resolve_root
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

SPLIT_NAMES: dict[str, SplitName] = {
    "train": "train",
    "training": "train",
    "test": "query",
    "val": "query",
    "valid": "query",
    "validation": "query",
    "query": "query",
    "queries": "query",
    "database": "database",
    "gallery": "database",
}
EMPTY_CLASS = "class without images"


@dataclass(frozen=True)
class _ImageFolder:
    """A folder whose images share a split and a class."""

    folder: str
    split: int = NO_SPLIT
    label: str = ""


def load_folder(
    path: Path,
    *,
    strict: bool = False,
    name: str | None = None,
    only: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> Dataset:
    """List a folder of images, or `only` some of its subfolders; nothing is decoded yet."""
    root, skipped = resolve_root(path), SkippedItems(strict)
    names: list[str] = []
    labels: list[str] = []
    splits: list[int] = []
    folders = _image_folders(root, list_subfolders(root) if only is None else only)
    for number, folder in enumerate(folders):
        progress("listing images", number / len(folders))
        # Images beside class folders have no label; all images below a class folder belong to the class.
        found = list(list_images(root, folder.folder, skipped, deep=bool(folder.label)))
        if folder.label and not found:
            skipped.add(EMPTY_CLASS, folder.folder)
        names += found
        labels += [folder.label] * len(found)
        splits += [folder.split] * len(found)
    progress("listing images", 1.0)
    if not names:
        raise InputError(_no_images(path, skipped))
    return Dataset(
        name or dataset_name(root),
        FileImages(root, names),
        ClassLabels.from_names(labels) if any(labels) else None,
        splits=np.array(splits, np.int8),
        skipped=skipped,
    )


def _no_images(path: Path, skipped: SkippedItems) -> str:
    links = {kind: count for kind, count in skipped.counts.items() if kind in LINK_PROBLEMS}
    if links:
        counts = ", ".join(f"{kind}: {count:,}" for kind, count in links.items())
        return f"{path} holds only links, which are not followed out of the folder or into other folders ({counts})."
    others = ", ".join(f"{kind}: {skipped.counts[kind]:,}" for kind in IGNORED if skipped.counts[kind])
    found = f" ({others})" if others else ""
    return f"{path} holds no images{found}; class folders (cats/1.jpg), or images, or a metadata.csv are expected."


def _image_folders(root: Path, folders: Sequence[str]) -> list[_ImageFolder]:
    """Return the folders of images: class folders, inside folders of splits if the root holds those."""
    parts = {folder: SPLITS.index(SPLIT_NAMES[folder.lower()]) for folder in folders if folder.lower() in SPLIT_NAMES}
    classes = {folder: list_subfolders(root, folder) for folder in parts}
    if len(parts) < len(folders):
        _check_unmixed(root, [folder for folder in parts if classes[folder]], [f for f in folders if f not in parts])
        return [_ImageFolder(""), *(_ImageFolder(label, NO_SPLIT, label) for label in folders)]
    inside = [_ImageFolder(f"{folder}/{label}", part, label) for folder, part in parts.items() for label in classes[folder]]
    return [_ImageFolder(""), *(_ImageFolder(folder, part) for folder, part in parts.items()), *inside]


def _check_unmixed(root: Path, parts: list[str], others: list[str]) -> None:
    """Raise where folders of splits with classes inside stand beside other folders: the layout is ambiguous."""
    if parts:
        raise InputError(
            f"{root} holds {', '.join(parts)} with classes inside, and beside it {', '.join(others[:3])}; "
            "move that away, or say in a metadata.csv what is what."
        )
