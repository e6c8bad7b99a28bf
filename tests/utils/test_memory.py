"""In a process of its own: what is asked of the allocator cannot be taken back."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from proxyhash.utils.memory import keep_freed_memory

def pages() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(2**24).fill(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if "keep" in sys.argv:
    keep_freed_memory()
pages()
print(pages())
"""


def faults(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_that_is_asked_for_again_is_not_fetched_again() -> None:
    assert faults("keep") < faults() / 10
