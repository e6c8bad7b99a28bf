"""Image files of a folder, in a fixed order and never outside of it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proxyhash.data.catalog import DATASETS
from proxyhash.data.decoding import EXTENSIONS
from proxyhash.data.skipped import SkippedItems
from proxyhash.utils.errors import InputError

OUTSIDE = "outside the folder"
LINKED_FOLDER = "link to a folder, not entered"
BROKEN = "link to nothing"
LINK_PROBLEMS = (OUTSIDE, LINKED_FOLDER, BROKEN)
SPECIAL = "image name of something that is not a file"
NOT_UTF8 = "file name that is not UTF-8"
HIDDEN = "hidden file or folder"
OTHER_KIND = "file of another kind"
IGNORED = (HIDDEN, OTHER_KIND)  # left out by rule; the others are problems


def resolve_root(path: Path) -> Path:
    """Return the folder with all links resolved."""
    try:
        root = path.expanduser().resolve(strict=True)
    except FileNotFoundError:
        raise InputError(f"There is no folder {path}.") from None
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    with _entries(root):
        return root


def dataset_name(root: Path) -> str:
    """Return what a data set in a folder is called: like the folder, but never like a published data set."""
    return f"folder {root.name}" if root.name in DATASETS or not root.name else root.name


def list_images(root: Path, folder: str, skipped: SkippedItems, *, deep: bool = True) -> Iterator[str]:
    """Yield the image files in `root / folder`, and at any depth below if `deep`, relative to `root`, in the order of names.

    Everything else is counted in `skipped`. Links that lead out of `root` are not followed, and folders that are hidden or
    links are not entered, so that a loop of links cannot trap us.
    """
    names, folders, others = [], [], []
    with _entries(root / folder) as entries:
        for entry in entries:
            relative = f"{folder}/{entry.name}" if folder else entry.name
            problem = _problem(root, relative, entry)
            if problem is not None:
                others.append((relative, problem))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(relative)
            else:
                names.append(relative)
    for relative, problem in sorted(others):
        (skipped.ignore if problem in IGNORED else skipped.add)(problem, relative)
    yield from sorted(names)
    for subfolder in sorted(folders) if deep else ():
        yield from list_images(root, subfolder, skipped)


def list_subfolders(root: Path, folder: str = "") -> list[str]:
    """Return the names of the folders directly inside, sorted, without hidden ones and links."""
    with _entries(root / folder) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")]
    return sorted(found)


def is_utf8(name: str) -> bool:
    """Return whether a name is valid text: some file systems, and tar files, allow any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_names(names: Iterable[str], skipped: SkippedItems) -> list[int]:
    """Return the indices of names that can be keys of an index; the others are counted."""
    kept = []
    for number, name in enumerate(names):
        if is_utf8(name):
            kept.append(number)
        else:
            skipped.add(NOT_UTF8, name)
    return kept


def is_inside(root: Path, path: Path) -> bool:
    """Return whether a path leads to something inside `root`, all links followed."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # a loop of links, or what cannot be a name
        return False


def _problem(root: Path, relative: str, entry: os.DirEntry[str]) -> str | None:
    """Return why an entry is neither an image that can be read nor a folder to enter; None if it is."""
    if entry.name.startswith("."):
        return HIDDEN
    if entry.is_dir(follow_symlinks=False):
        return None
    if entry.is_symlink() and (problem := _problem_of_link(root, relative)):
        return problem
    if os.path.splitext(entry.name)[1].lower() not in EXTENSIONS:  # noqa: PTH122  Path is slow
        return OTHER_KIND
    return None if entry.is_file() else SPECIAL


def _problem_of_link(root: Path, relative: str) -> str | None:
    path = root / relative
    if path.is_dir():
        return LINKED_FOLDER
    if path.suffix.lower() not in EXTENSIONS:
        return None
    if not os.path.exists(path):  # noqa: PTH110  of a loop of links, it says no
        return BROKEN
    return None if is_inside(root, path) else OUTSIDE


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    try:
        found = os.scandir(folder)
    except NotADirectoryError:
        raise InputError(f"{folder} is not a folder.") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}.") from error
    with found:
        yield found
