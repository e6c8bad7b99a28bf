"""Restricted unpickler for the official CIFAR files."""

import io
import pickle
from pathlib import Path
from typing import Any

from proxyhash.utils.errors import InputError

# The official files need NumPy arrays only. `_codecs.encode` makes bytes of Python 2 strings.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        if name == "_reconstruct":
            module = "numpy._core.multiarray"  # its old name makes NumPy warn
        return super().find_class(module, name)


def load_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in an official CIFAR file; anything but plain values and arrays is refused."""
    try:
        content = _Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise InputError(f"{path} was refused: it is not a plain table of arrays ({error}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} was refused: it holds no table.")
    return content
