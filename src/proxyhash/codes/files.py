"""Files of codes that any system may have written: .npz or .mat with an array `codes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, pack
from proxyhash.utils.errors import InputError


@dataclass(frozen=True, eq=False)
class CodeFile:
    """Packed `codes` (N, bytes) of `bits` bits; `labels`, (N,) or (N, tags), and `keys` (N,) are None if absent."""

    codes: Packed
    bits: int
    labels: NDArray[Any] | None = None
    keys: list[str] | None = None


def read_code_file(path: str | Path, required: Sequence[str] = ("codes",)) -> CodeFile:
    """Read codes, and labels and keys where the file has them.

    Codes are packed already (uint8 with an array `bits`, or with values above 1), or a matrix of booleans, of 0 and 1, or
    of numbers taken by their sign.

    Parameters
    ----------
    path
        An .npz or .mat file.
    required
        Names of the arrays that the file must hold.

    Returns
    -------
    CodeFile
        Packed codes, their number of bits, labels and keys.

    Raises
    ------
    InputError
        If the file cannot be read, lacks an array or holds pickled objects.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/codes.npz", codes=[[1, -1, 1]], labels=["cat"])
    ...     file = read_code_file(f"{folder}/codes.npz")
    >>> file.codes.tolist(), file.bits, file.labels
    ([[5]], 3, array(['cat'], dtype='<U3'))
    """
    arrays = _read_arrays(Path(path), required)
    for name in required:
        if name not in arrays:
            raise InputError(f"{path} has no array {name!r}; it holds {', '.join(sorted(arrays)) or 'none'}.")
    codes, labels, keys = arrays["codes"], arrays.get("labels"), arrays.get("keys")
    if any(array is not None and array.dtype == object for array in (codes, labels, keys)):
        raise InputError(f"{path} holds Python objects, which are not read; save plain arrays.")
    packed = codes.ndim == 2 and codes.dtype == np.uint8 and ("bits" in arrays or codes.max(initial=0) > 1)
    packed_codes = codes if packed else pack(codes)
    known = "bits" in arrays and arrays["bits"].size == 1
    bits = int(arrays["bits"].item()) if known else codes.shape[1] * (8 if packed else 1)
    if labels is not None and labels.ndim == 2 and 1 in labels.shape and labels.size == len(codes) > 1:
        labels = labels.ravel()  # MATLAB stores vectors as matrices of one row or column
    return CodeFile(packed_codes, bits, labels, None if keys is None else [str(key) for key in keys])


def _read_arrays(path: Path, required: Sequence[str]) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return _read_mat(path) if path.suffix.lower() == ".mat" else _read_npz(path, required)
    except InputError:
        raise
    except Exception as error:  # readers raise many types of errors for damaged files
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as {path.suffix or 'npz'}: {reason}") from error


def _read_npz(path: Path, required: Sequence[str]) -> dict[str, NDArray[Any]]:
    with path.open("rb") as handle:
        archive = np.load(handle, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            needed = " and ".join(repr(name) for name in required)
            raise InputError(f"{path} holds one array without a name; an .npz file with {needed} is needed.")
        return {name: _read_array(archive, name, path) for name in archive.files}


def _read_array(archive: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except ValueError:
        raise InputError(f"{path} holds pickled objects ({name}), which are refused because they can run code.") from None
    return array


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    return {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
