"""Memory that a process has freed and will soon want again."""

import ctypes
import sys

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let glibc keep what is freed instead of giving it back to the system; elsewhere do nothing.

    A training step frees and asks again for gigabytes. Taken from the system, every page is first filled with zeros: a third
    of the step's time. The process then stays as large as its largest step.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # large pieces come from the heap as well
        mallopt(_TRIM_THRESHOLD, -1)  # and the heap never shrinks
