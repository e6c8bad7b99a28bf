"""Files of codes that any system may have written: .npz or .mat with an array `codes`."""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import MAX_BITS, Packed, pack
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.validation import shorten

FORMAT = "proxyhash.codes/1"
HEADER, SHA256 = "header", "sha256"  # arrays that only files of this package have
_COLUMN, _MISSING = "column:", "missing:"  # before the names of columns
MAX_UNPACKED, MAX_RATIO = 1 << 30, 50  # a file that unpacks to more bytes, and to so many times its size, is a bomb

_END_SIZE = 22  # bytes of the last record of a zip file, which counts the members


@dataclass(frozen=True, eq=False)
class CodeFile:
    """Packed `codes` (N, bytes) of `bits` bits; `labels`, (N,) or (N, tags), and `keys` (N,) are None if absent.

    So are the names of tags (tags,), and the fingerprint of the `model`. `columns` are further arrays (N,) by name, masked
    where a value is missing.
    """

    codes: Packed
    bits: int
    labels: NDArray[Any] | None = None
    keys: list[str] | None = None
    label_names: list[str] | None = None
    model: str | None = None
    columns: Mapping[str, "np.ma.MaskedArray[Any, Any]"] = field(default_factory=dict)


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
    if any(array is not None and array.dtype == object for array in (codes, labels, keys, arrays.get("label_names"))):
        raise InputError(f"{path} holds Python objects, which are not read; save plain arrays.")
    if codes.ndim != 2 or not codes.shape[1]:
        raise InputError(f"{path}: codes must be a matrix (items, bits or bytes), not of shape {codes.shape}.")
    packed = codes.dtype == np.uint8 and ("bits" in arrays or codes.max(initial=0) > 1)
    packed_codes = codes if packed else pack(codes)
    bits = codes.shape[1] * (8 if packed else 1)
    if "bits" in arrays:
        bits = _read_bits(arrays["bits"], packed_codes.shape[1], Path(path))
    if labels is not None and labels.ndim == 2 and 1 in labels.shape and labels.size == len(codes) > 1:
        labels = labels.ravel()  # MATLAB stores vectors as matrices of one row or column
    for name, array in (("labels", labels), ("keys", keys)):
        if array is not None and (not array.ndim or len(array) != len(codes)):
            raise InputError(f"{path}: {name} must have one row for each of the {len(codes):,} codes, not {array.shape}.")
    names, model = arrays.get("label_names"), arrays.get("model")
    if names is not None and (labels is None or labels.ndim != 2 or names.shape != labels.shape[1:]):
        raise InputError(f"{path}: label_names must have one name for each column of labels.")
    return CodeFile(
        packed_codes,
        bits,
        labels,
        None if keys is None else [str(key) for key in keys],
        None if names is None else [str(name) for name in names],
        None if model is None or model.ndim or model.dtype.kind != "U" else str(model),
        _read_columns(arrays, len(codes), Path(path)),
    )


def _read_columns(arrays: Mapping[str, NDArray[Any]], count: int, path: Path) -> "dict[str, np.ma.MaskedArray[Any, Any]]":
    """Return the arrays of columns, masked by those that say which values are missing."""
    columns = {}
    for name, array in arrays.items():
        if name.startswith(_COLUMN):
            missing = arrays.get(f"{_MISSING}{name.removeprefix(_COLUMN)}", np.zeros(count, np.bool_))
            if array.dtype == object or array.shape != (count,) or missing.shape != (count,) or missing.dtype != np.bool_:
                raise InputError(f"{path}: {shorten(name)} must have one value for each of the {count:,} codes.")
            columns[name.removeprefix(_COLUMN)] = np.ma.MaskedArray(array, missing)
    return columns


def _read_bits(array: NDArray[Any], width: int, path: str | Path) -> int:
    """Return the number of bits of codes of `width` bytes."""
    if array.size != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all() or array.item() % 1:
        raise InputError(f"{path}: bits must be one whole number, not {shorten(array.tolist())}.")
    bits = int(array.item())
    if not 8 * width - 8 < bits <= min(8 * width, MAX_BITS):
        raise InputError(f"{path}: codes of {shorten(bits)} bits do not take {width} bytes each.")
    return bits


def write_code_file(
    path: Path,
    codes: Packed,
    bits: int,
    keys: Sequence[str],
    *,
    labels: NDArray[Any] | None = None,
    label_names: NDArray[Any] | None = None,
    model: str | None = None,
    columns: "Mapping[str, np.ma.MaskedArray[Any, Any]] | None" = None,
) -> None:
    """Write packed codes and their keys to an .npz file, with its format and a checksum; see `CodeFile`."""
    header = np.array(json.dumps({"format": FORMAT, REQUIRES: RELEASE}))
    arrays = {"codes": codes, "keys": np.array(keys, np.str_), "bits": np.int64(bits), HEADER: header}
    more = {"labels": labels, "label_names": label_names, "model": None if model is None else np.array(model)}
    for name, column in (columns or {}).items():
        more |= {f"{_COLUMN}{name}": np.asarray(column.data), f"{_MISSING}{name}": np.ma.getmaskarray(column)}
    arrays |= {name: array for name, array in more.items() if array is not None}
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, **arrays, **{SHA256: np.array(arrays_sha256(arrays))})  # type: ignore[arg-type]


def arrays_sha256(arrays: Mapping[str, Any]) -> str:
    """Return the SHA-256 of named arrays: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{np.shape(arrays[name])};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def check_unpacked_size(path: Path) -> None:
    """Raise an `InputError` for a zip file that is small and unpacks to more than memory may hold, or lacks members."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    # One wrong length in the list of members hides those after it; zipfile does not compare their number.
    with path.open("rb") as handle:
        handle.seek(-min(_END_SIZE, path.stat().st_size), os.SEEK_END)
        end = handle.read()
    if end[:4] == b"PK\5\6" and int.from_bytes(end[10:12], "little") not in (len(members), 0xFFFF):
        raise InputError(f"{path} is damaged: some of its members cannot be found.")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size):
        raise InputError(f"{path} unpacks to {unpacked:,} bytes, far more than its size, and is not read.")


def _check_own(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Check format and checksum of a file by `write_code_file`, and remove both arrays; other files have neither."""
    header = arrays.get(HEADER)
    if header is None or SHA256 not in arrays or header.ndim or header.dtype.kind != "U":
        return
    fields = json.loads(str(header))
    if isinstance(fields, dict) and str(fields.get("format")).startswith("proxyhash.codes/"):
        check_format(path, fields["format"], (FORMAT,), fields.get(REQUIRES))
        if str(arrays.pop(SHA256)) != arrays_sha256(arrays):
            raise InputError(f"{path} is damaged: its checksum differs; encode the images again.")
        del arrays[HEADER]


def _read_arrays(path: Path, required: Sequence[str]) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return _read_mat(path) if path.suffix.lower() == ".mat" else _read_npz(path, required)
    except InputError:
        raise
    except Exception as error:  # readers raise many types of errors for damaged files
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(f"{path} cannot be read as {path.suffix or 'npz'}: {reason}.") from error


def _read_npz(path: Path, required: Sequence[str]) -> dict[str, NDArray[Any]]:
    if zipfile.is_zipfile(path):
        check_unpacked_size(path)
    with path.open("rb") as handle:
        archive = np.load(handle, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            needed = " and ".join(repr(name) for name in required)
            raise InputError(f"{path} holds one array without a name; an .npz file with {needed} is needed.")
        arrays = {name: _read_array(archive, name, path) for name in archive.files}
    _check_own(arrays, path)
    return arrays


def _read_array(archive: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(f"{path} holds pickled objects ({name}), which are refused because they can run code.") from None
    if not isinstance(array, np.ndarray):  # numpy returns a member that is not an array as bytes
        raise InputError(f"{path} holds {shorten(name)}, which is not an array.")
    return array


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    return {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
