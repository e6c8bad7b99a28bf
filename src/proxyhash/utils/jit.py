"""Functions compiled by numba, cached in a folder that only the user can write."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

from proxyhash.utils.paths import cache_root

Function = TypeVar("Function", bound=Callable[..., Any])

NUMPY_SECONDS = 0.1  # work that a process does with numpy, before it takes 0.4 s to load the runtime of numba


def jit(*, skip_refcounts: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Compile a function with numba; cache the machine code if the cache folder is private.

    `skip_refcounts` is for functions that neither create nor keep arrays: counting references to the arrays of a few
    named tuples takes longer than a short function.
    """
    if skip_refcounts:
        options["_nrt"] = False

    def compile_function(function: Function) -> Function:
        folder = private_cache_folder()
        with _numba_cache(folder):
            return numba.njit(cache=folder is not None, **options)(function)  # type: ignore[no-any-return]

    return compile_function


class ColdStart:
    """Decides who does the first jobs of a process: the first call of a compiled function takes 0.4 s, even a cached one.

    Small jobs are done with numpy, until they add up to `NUMPY_SECONDS`. A command that searches with one image ends
    before that. Results must be the same.
    """

    def __init__(self) -> None:
        self.seconds = NUMPY_SECONDS

    @property
    def is_over(self) -> bool:
        """Return whether compiled functions do all jobs."""
        return self.seconds <= 0

    def use_numpy(self, seconds: float) -> bool:
        """Return whether to do a job with numpy, which takes about so many seconds."""
        self.seconds -= seconds
        return not self.is_over

    def end(self) -> None:
        """Run compiled functions from now on, as a process does that starts before its first request."""
        self.seconds = 0.0


cold_start = ColdStart()


@cache
def private_cache_folder() -> Path | None:
    """Return the folder for compiled code below `cache_root`, or None if other users could write to it."""
    folder = cache_root() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_private(folder) else None
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    if not hasattr(os, "geteuid"):  # on Windows the cache is in the user's profile, which the system protects
        return os.access(folder, os.W_OK)
    status = folder.stat()
    others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not others_may_write and os.access(folder, os.W_OK)


@contextmanager
def _numba_cache(folder: Path | None) -> Iterator[None]:
    """Set the cache folder of numba while a function is decorated, which is when numba reads it."""
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(folder or before)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
