"""A disk that is full: every library that writes says so in its own way."""

import errno
import shutil
import sqlite3
from pathlib import Path

from proxyhash.support.errors import InputError

ADVICE = "no space is left on its disk; free some and run it again"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NOTHING = 1 << 20  # bytes: with less, whatever failed to be written failed for want of space


def is_full(error: BaseException, place: Path) -> bool:
    """Return whether an error means that there is no space left on the disk that `place` is on."""
    if isinstance(error, InputError):
        return False
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if isinstance(error, sqlite3.Error):
        return "disk is full" in str(error)
    try:  # torch and safetensors have errors of their own, which do not say why
        return shutil.disk_usage(place).free < _NOTHING
    except OSError:
        return False
