"""Compiled kernels, cached where only their user can write: a cache of machine code is code."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

from proxyhash.support.places import cache_root

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(*, borrows: bool = False, **options: Any) -> Callable[[Kernel], Kernel]:
    """Compile a function with numba; keep the machine code for the next run if there is a private folder for it.

    A function that only `borrows` arrays, and makes and keeps none, need not count references to them: for the dozen arrays
    of a few named tuples that takes longer than a short function.
    """
    if borrows:
        options["_nrt"] = False

    def compile_function(function: Kernel) -> Kernel:
        folder = private_cache_folder()
        with _numba_cache(folder):
            return numba.njit(cache=folder is not None, **options)(function)  # type: ignore[no-any-return]

    return compile_function


@cache
def private_cache_folder() -> Path | None:
    """Return the folder for compiled code (`PROXYHASH_CACHE`, or the user's cache folder), or None if none is private."""
    folder = cache_root() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_private(folder) else None
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    if os.name != "posix":  # elsewhere the cache lies in the user's profile, which the system guards
        return os.access(folder, os.W_OK)
    facts = folder.stat()
    others_may_write = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return facts.st_uid == os.geteuid() and not others_may_write and os.access(folder, os.W_OK)


@contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Point numba at `folder` while a function is decorated: that is when it decides where the function's code goes."""
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(folder or before)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
