"""Processes whose compiled functions use only some features of an x86 processor."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WITHOUT_WIDE_REGISTERS = ["+sse2,+popcnt", "+sse4.2,+popcnt,+avx,+avx2"]
"""Features for numba: without AVX2, and without AVX-512"""

needs_x86 = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="features of x86 processors"
)


def run_with_features(program: str, features: str, cache: Path) -> Any:
    """Return the JSON that a program prints, if compiled functions use only some features; they are cached in a folder."""
    return _run(program, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=features, XDG_CACHE_HOME=str(cache))


def run_with_all_features(program: str) -> Any:
    """Return the JSON that a program prints with all features of the processor."""
    return _run(program)


def _run(program: str, **variables: str) -> Any:
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
