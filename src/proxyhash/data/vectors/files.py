"""Files of vectors, with keys and labels where a file has them."""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.files import check_unpacked_size
from proxyhash.data.vectors.rows import VectorRows
from proxyhash.labels import ClassLabels, Labels, TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import shorten

VECTORS = "vectors"
MAX_HEADER = 100_000_000  # bytes of the header of a .safetensors file, as the format limits it
_NUMPY_TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
FORMATS = ".npy, .npz, .safetensors or .parquet, or a folder of the library datasets"


@dataclass(frozen=True, eq=False)
class VectorFile:
    """Content of a file of vectors.

    Parameters
    ----------
    path
        The file or folder.
    values
        Vectors (N, width) of float16, float32 or float64, memory-mapped where the format allows it.
    keys
        A key for each vector; None if the file has none.
    labels
        Classes or tags; None if the file has none.
    column
        The column of the vectors, if the file is a table.
    columns
        Further values of each vector by the name of their column, such as a year or a title.
    """

    path: Path
    values: NDArray[Any]
    keys: Sequence[str] | None = None
    labels: Labels | None = None
    column: str | None = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that keys and labels have a row for each vector."""
        self.rows()
        for name, given in (("keys", self.keys), ("labels", self.labels)):
            if given is not None and len(given) != len(self):
                raise InputError(f"{self.path}: there are {len(self):,} vectors and {len(given):,} {name}.")

    def __len__(self) -> int:
        """Return N."""
        return len(self.values)

    def rows(self, *, normalize: bool = False) -> VectorRows:
        """Return the vectors as rows of float32, scaled to length 1 if asked."""
        return VectorRows(self.values, normalize=normalize, name=str(self.path))


def read_vectors(
    path: str | Path,
    *,
    vector_column: str | None = None,
    key_column: str | None = None,
    label_columns: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> VectorFile:
    """Open a file of vectors.

    Parameters
    ----------
    path
        A .npy file (memory-mapped), a .npz file with an array `vectors` and optional arrays `keys`, `labels` or `tags`, a
        .safetensors file with the same names (memory-mapped), a .parquet file or a folder of them, or a folder that
        the library `datasets` saved. Vectors of tables are copied to a temporary file.
    vector_column, key_column, label_columns
        Columns of a table. By default the only column of lists of floats, the column `key` or `id`, and the columns
        `label`, `labels` or `tags`.
    columns
        Further columns of a table, which filters of a search may use. None: all that hold numbers, texts or dates.

    Returns
    -------
    VectorFile
        Vectors, keys and labels.

    Raises
    ------
    InputError
        If the file cannot be read, holds Python objects, or has no vectors.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/v.npz", vectors=np.eye(2, dtype=np.float32), labels=["cat", "dog"])
    ...     file = read_vectors(f"{folder}/v.npz")
    >>> file.values.shape, file.labels.names
    ((2, 2), ('cat', 'dog'))
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    is_table = path.is_dir() or path.suffix.lower() == ".parquet"
    if not is_table and (vector_column or key_column or label_columns or columns):
        raise InputError(f"{path} has no columns; only .parquet files and folders of the library datasets have.")
    if is_table:
        from proxyhash.data.vectors.tables import read_table

        return read_table(path, vector_column, key_column, label_columns, columns)
    readers: dict[str, Callable[[Path], VectorFile]] = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        ".safetensors": _read_safetensors,
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} is not a file of vectors; they are read from {FORMATS}.")
    return readers[path.suffix.lower()](path)


def read_labels(path: str | Path, count: int) -> ClassLabels:
    """Read the classes of `count` vectors: a .npy or .npz file (`labels`) of integers or texts, or a .txt file by line.

    An integer of -1 and an empty text stand for an unknown class.
    """
    path = Path(path)
    is_text = path.suffix.lower() == ".txt"
    values = np.array(_read_text(path).splitlines()) if is_text else _read_array(path, "labels")
    _check_count(path, "labels", values, count)
    return class_labels(values, str(path))


def read_tags(path: str | Path, count: int) -> TagLabels:
    """Read the tags of `count` vectors: a matrix (N, T) of 0 and 1 in a .npy or .npz file (`tags`, and optional `names`).

    A matrix that scipy.sparse.save_npz wrote is read too.
    """
    path = Path(path)
    names: Sequence[str] | None = None
    if path.suffix.lower() == ".npz":
        arrays = _load_npz(path)
        if {"indices", "indptr", "shape"} <= arrays.keys():
            values = _read_sparse(path)
        else:
            values = _required(arrays, "tags", path)
            names = [str(name) for name in arrays["names"]] if "names" in arrays else None
    else:
        values = _read_array(path, "tags")
    _check_count(path, "tags", values, count)
    return tag_labels(values, str(path), names)


def class_labels(values: NDArray[Any], name: str) -> ClassLabels:
    """Return classes (N,) of integers, whose names are their numbers, or of texts."""
    if values.ndim == 1 and values.dtype.kind in "US":
        return ClassLabels.from_names([str(value) for value in values.astype(str)])
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"{name}: labels must be integers or texts (N,), not {values.dtype} {values.shape}.")
    if len(values) and int(values.max()) > 10_000_000:
        raise InputError(f"{name}: the label {int(values.max())} is too large; number the classes from 0.")
    return ClassLabels(values.astype(np.int64), tuple(str(number) for number in range(int(values.max(initial=-1)) + 1)))


def tag_labels(values: NDArray[Any], name: str, names: Sequence[str] | None = None) -> TagLabels:
    """Return tags (N, T) of 0 and 1; their names are their numbers, unless given."""
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not ((values == 0) | (values == 1)).all():
        raise InputError(f"{name}: tags must be a matrix (N, T) of 0 and 1, not {values.dtype} {values.shape}.")
    if names is not None and len(names) != values.shape[1]:
        raise InputError(f"{name}: there are {values.shape[1]:,} tags and {len(names):,} names.")
    return TagLabels(values.astype(bool), tuple(names or (str(number) for number in range(values.shape[1]))))


def _check_count(path: Path, name: str, values: NDArray[Any], count: int) -> None:
    if not values.ndim or len(values) != count:
        found = len(values) if values.ndim else 0
        raise InputError(f"{path}: there are {count:,} vectors and {found:,} {name}.")


def _read_npy(path: Path) -> VectorFile:
    return VectorFile(path, _load(path, mmap_mode="r"))


def _read_npz(path: Path) -> VectorFile:
    arrays = _load_npz(path)
    matrices = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"]
    keys = [str(key) for key in arrays["keys"].ravel()] if "keys" in arrays else None
    return VectorFile(path, arrays[_choose(matrices, path)], keys, _labels_of(arrays, path))


def _read_safetensors(path: Path) -> VectorFile:
    """Map the tensors of a file; the header is the length of a JSON text, 8 bytes, and the text."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):  # checks the header: offsets, sizes, overlaps
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, MAX_HEADER)))
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    header.pop("__metadata__", None)
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        numpy_type = {**_NUMPY_TYPES, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}.get(entry["dtype"])
        if numpy_type is not None and 0 not in entry["shape"]:
            offset = 8 + size + entry["data_offsets"][0]
            arrays[name] = np.memmap(path, numpy_type, "r", offset, tuple(entry["shape"]))
    matrices = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"]
    if not matrices and any(entry["dtype"] == "BF16" for entry in header.values()):
        raise InputError(f"{path} holds bfloat16, which numpy has no type for; save the vectors as float16 or float32.")
    return VectorFile(path, arrays[_choose(matrices, path)], None, _labels_of(arrays, path))


def _choose(matrices: Sequence[str], path: Path) -> str:
    """Return the name of the array of vectors: `vectors`, or the only matrix of floats."""
    if VECTORS in matrices:
        return VECTORS
    if len(matrices) != 1:
        found = ", ".join(shorten(name) for name in matrices) or "none"
        raise InputError(f"{path} needs one matrix of floats, named {VECTORS} if there are several; it holds {found}.")
    return matrices[0]


def _labels_of(arrays: dict[str, NDArray[Any]], path: Path) -> Labels | None:
    if "labels" in arrays and "tags" in arrays:
        raise InputError(f"{path} holds labels and tags; keep one of the two.")
    if "tags" in arrays:
        return tag_labels(arrays["tags"], str(path))
    return class_labels(arrays["labels"], str(path)) if "labels" in arrays else None


def _read_array(path: Path, name: str) -> NDArray[Any]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if path.suffix.lower() == ".npz":
        return _required(_load_npz(path), name, path)
    if path.suffix.lower() != ".npy":
        raise InputError(f"{path} is not a file of {name}; they are read from .npy and .npz files.")
    return _load(path)


def _required(arrays: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    if name not in arrays:
        raise InputError(f"{path} has no array {name!r}; it holds {', '.join(sorted(arrays)) or 'none'}.")
    return arrays[name]


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz file.")
    check_unpacked_size(path)
    archive = _load(path)
    try:
        return {name: np.asarray(archive[name]) for name in archive.files}  # type: ignore[attr-defined]
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise _unreadable(path, error) from error
    finally:
        archive.close()  # type: ignore[attr-defined]


def _load(path: Path, **options: Any) -> NDArray[Any]:
    try:
        loaded: NDArray[Any] = np.load(path, allow_pickle=False, **options)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    return loaded


def _read_sparse(path: Path) -> NDArray[Any]:
    import scipy.sparse

    try:
        dense: NDArray[Any] = scipy.sparse.load_npz(path).toarray()
    except (ValueError, OSError, KeyError, IndexError, MemoryError) as error:
        raise _unreadable(path, error) from error
    return dense


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return InputError(f"{path} holds Python objects, which are not read; save plain arrays of numbers.")
    return InputError(f"{path} cannot be read: {' '.join(str(error).split())[:200].rstrip('.')}.")
