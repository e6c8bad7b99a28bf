"""Script that reads a file of faiss or usearch and writes its ids and codes as plain arrays.

`extraction.py` runs it in a process of its own: a hostile file can make these libraries crash or allocate any memory. It
imports nothing of this package, and writes `ids.npy` (n,), ascending, `codes.npy` (n, bytes), and `result.json`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK = 65_536  # codes that are copied at a time
_MEMORY_FACTOR, _SPARE_MEMORY = 8, 1 << 30  # an honest file takes less than 8 times its size

Part = tuple[NDArray[Any], NDArray[np.uint8]]  # ids (n,) and codes (n, bytes)


class RefusedError(Exception):
    """A file that is not read; the message is a sentence without its name."""


def limit_memory(size: int) -> None:
    """Limit what this process may allocate from now on, where the system can."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY_FACTOR * size + _SPARE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read_faiss(path: Path, folder: Path) -> int:
    """Extract an index of faiss, and return the number of its bits."""
    import faiss

    limit_memory(path.stat().st_size)
    index = faiss.read_index_binary(str(path))
    write_arrays(list(_faiss_parts(faiss, index)), index.d // 8, folder)
    return int(index.d)


def _faiss_parts(faiss: Any, index: Any) -> Iterator[Part]:
    """Yield ids and codes of an index, as views."""
    width = index.d // 8
    if isinstance(index, faiss.IndexBinaryIDMap | faiss.IndexBinaryIDMap2):
        names = faiss.rev_swig_ptr(index.id_map.data(), index.id_map.size()) if index.id_map.size() else np.zeros(0, int)
        for ids, codes in _faiss_parts(faiss, faiss.downcast_IndexBinary(index.index)):
            yield names[ids], codes
    elif isinstance(index, faiss.IndexBinaryFlat):
        size = index.xb.size()
        codes = faiss.rev_swig_ptr(index.xb.data(), size) if size else np.zeros(0, np.uint8)
        yield np.arange(index.ntotal), codes.reshape(-1, width)
    elif isinstance(index, faiss.IndexBinaryIVF):
        lists = faiss.downcast_InvertedLists(index.invlists)
        if not isinstance(lists, faiss.ArrayInvertedLists) or lists.code_size != width:
            raise RefusedError("has inverted lists of a kind that is not read; write it with lists in memory.")
        for number in range(index.nlist):
            if size := lists.list_size(number):
                codes = faiss.rev_swig_ptr(lists.get_codes(number), size * width).reshape(size, width)
                yield faiss.rev_swig_ptr(lists.get_ids(number), size), codes
    else:
        kind = type(index).__name__
        raise RefusedError(f"holds an {kind}; IndexBinaryFlat, IndexBinaryIVF and IndexBinaryIDMap of these are read.")


def read_usearch(path: Path, folder: Path) -> int:
    """Extract an index of usearch, and return the number of its bits."""
    from usearch.index import Index

    limit_memory(path.stat().st_size)
    metadata = Index.metadata(str(path))
    if metadata is None or metadata["kind_scalar"].name != "B1":
        raise RefusedError("holds vectors that are not binary (b1); only codes are imported.")
    index = Index.restore(str(path), view=True)
    if index is None or index.multi:
        raise RefusedError("is damaged, or has several codes for a key; write it with multi=False.")
    width = (index.ndim + 7) // 8
    ids = np.sort(np.asarray(index.keys, np.uint64))
    chunks = [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
    write_arrays([(part, np.asarray(index.get(part), np.uint8).reshape(len(part), width)) for part in chunks], width, folder)
    return int(index.ndim)


def write_arrays(parts: list[Part], width: int, folder: Path) -> None:
    """Write ids and codes in the order of the ids."""
    if any(len(ids) != len(codes) for ids, codes in parts):
        raise RefusedError("is damaged: the numbers of ids and codes differ.")
    ids = np.concatenate([np.zeros(0, parts[0][0].dtype if parts else np.int64), *(ids for ids, _ in parts)])
    order = np.argsort(ids, kind="stable")
    np.save(folder / "ids.npy", ids[order])
    if not len(ids):
        np.save(folder / "codes.npy", np.zeros((0, width), np.uint8))
        return
    rows = np.empty(len(ids), np.int64)
    rows[order] = np.arange(len(ids))
    out = np.lib.format.open_memmap(folder / "codes.npy", "w+", np.uint8, (len(ids), width))
    first = 0
    for part, codes in parts:
        for start in range(0, len(part), _CHUNK):
            chunk = codes[start : start + _CHUNK]
            out[rows[first : first + len(chunk)]] = chunk
            first += len(chunk)
    out.flush()


def main(kind: str, path: str, folder: str) -> None:
    """Extract a file, and write what came of it."""
    readers = {"faiss": read_faiss, "usearch": read_usearch}
    try:
        result: dict[str, Any] = {"bits": readers[kind](Path(path), Path(folder))}
    except ModuleNotFoundError:
        result = {"missing": kind}
    except RefusedError as error:
        result = {"refused": str(error)}
    except MemoryError:
        result = {"refused": "asks for far more memory than its size, and is not read."}
    except Exception as error:  # the libraries raise many types of errors for damaged files
        result = {"refused": f"cannot be read as {kind}: {' '.join(str(error).split())[:200].rstrip('.')}."}
    (Path(folder) / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
