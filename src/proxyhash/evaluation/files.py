"""Codes and labels from files that anyone's system may have written: .npz or .mat with arrays `codes` and `labels`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, pack
from proxyhash.utils.errors import InputError


def read_labeled_codes(path: str | Path) -> tuple[Packed, NDArray[Any]]:
    """Return packed codes (N, bytes) and labels, (N,) or (N, tags).

    Codes are packed already (uint8 with values above 1), or booleans, 0 and 1, or numbers taken by their sign.
    """
    arrays = _read(Path(path))
    for name in ("codes", "labels"):
        if name not in arrays:
            raise InputError(f"{path} has no array {name!r}; it holds {', '.join(sorted(arrays)) or 'none'}.")
    codes, labels = arrays["codes"], arrays["labels"]
    if any(array.dtype == object for array in (codes, labels)):
        raise InputError(f"{path} holds Python objects, which are not read; save plain arrays.")
    packed = codes.ndim == 2 and codes.dtype == np.uint8 and codes.size > 0 and codes.max() > 1
    if labels.ndim == 2 and 1 in labels.shape and labels.size == len(codes) > 1:
        labels = labels.ravel()  # MATLAB has no vectors, only matrices of one row or column
    return (codes if packed else pack(codes)), labels


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return _read_mat(path) if path.suffix.lower() == ".mat" else _read_npz(path)
    except InputError:
        raise
    except Exception as error:  # whatever a damaged file makes its reader raise
        raise InputError(f"{path} cannot be read as {path.suffix or 'npz'}: {' '.join(str(error).split())}") from error


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as handle:
        archive = np.load(handle, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path} holds one array without a name; an .npz file with 'codes' and 'labels' is needed.")
        return {name: _array(archive, name, path) for name in archive.files}


def _array(archive: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except ValueError:
        raise InputError(f"{path} holds pickled objects ({name}), which are refused because they can run code.") from None
    return array


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    return {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
