"""Memory allocator settings."""

import ctypes
import sys

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system; without glibc do nothing.

    A training step frees and allocates gigabytes. The system zeroes every page it hands out, which takes a third of the
    step's time. The process stays as large as its largest step.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # large blocks come from the heap too
        mallopt(_TRIM_THRESHOLD, -1)  # the heap never shrinks
