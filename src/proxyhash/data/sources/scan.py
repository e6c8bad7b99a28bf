"""Listing the image files of a folder: streamed, in a fixed order, and never outside of it."""

import os
from collections.abc import Iterator
from pathlib import Path

from proxyhash.data.decoding import EXTENSIONS
from proxyhash.data.problems import Problems
from proxyhash.support.errors import InputError

OUTSIDE = "outside the folder"


def checked_root(path: Path) -> Path:
    """Return the folder with all links resolved."""
    try:
        root = path.expanduser().resolve(strict=True)
        with os.scandir(root):
            return root
    except FileNotFoundError:
        raise InputError(f"There is no folder {path}.") from None
    except NotADirectoryError:
        raise InputError(f"{path} is not a folder.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error


def image_files(root: Path, folder: str, problems: Problems, *, deep: bool = True) -> Iterator[str]:
    """Yield the image files in `root / folder`, and at any depth below if `deep`, relative to `root`, in the order of names.

    Hidden files and files of other kinds are passed over; links that lead out of `root` are counted and skipped. Folders
    that are links are not entered, so that a loop of links cannot trap us.
    """
    names, folders = [], []
    with os.scandir(root / folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(relative)
            elif os.path.splitext(entry.name)[1].lower() in EXTENSIONS:  # noqa: PTH122  a million times faster than Path
                if entry.is_symlink() and not is_inside(root, root / relative):
                    problems.add(OUTSIDE, relative)
                elif entry.is_file():
                    names.append(relative)
    yield from sorted(names)
    for subfolder in sorted(folders) if deep else ():
        yield from image_files(root, subfolder, problems)


def subfolders(root: Path, folder: str = "") -> list[str]:
    """Return the names of the folders directly inside, sorted, without hidden ones and links."""
    with os.scandir(root / folder) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")]
    return sorted(found)


def is_inside(root: Path, path: Path) -> bool:
    """Return whether a path leads to something inside `root`, all links followed."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False
