"""Files of faiss: `IndexBinaryFlat`, or `IndexBinaryIVF` with the centroids of the index."""

from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.exchange.content import CodeContent
from proxyhash.index.exchange.item_lines import item_lines_writer
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError


def write_faiss(path: Path, content: CodeContent) -> int:
    """Write codes for faiss, which holds all of them in memory, and return their number.

    The ids of faiss are rows of the file of items. Codes are padded with zeros to whole bytes.
    """
    try:
        import faiss
    except ImportError:
        raise InputError("Files of faiss need faiss: pip install 'proxyhash[approximate]'.") from None
    engine = _new_engine(8 * ((content.bits + 7) // 8), content.centroids)
    with atomic_write(path) as temporary, item_lines_writer(path, content) as lines:
        for batch in content.read():
            engine.add(np.ascontiguousarray(batch.codes))
            lines.add(batch)
        faiss.write_index_binary(engine, str(temporary))
    return int(engine.ntotal)


def _new_engine(bits: int, centroids: Packed | None) -> Any:
    """Return an empty index of faiss for codes of `bits` bits, a multiple of 8."""
    import faiss

    flat = faiss.IndexBinaryFlat(bits)
    if centroids is None:
        return flat
    flat.add(np.ascontiguousarray(centroids))
    engine = faiss.IndexBinaryIVF(flat, bits, len(centroids))
    engine.is_trained = True  # the centroids are given
    engine.own_fields = True
    flat.this.disown()  # type: ignore[attr-defined]  # the engine deletes it
    return engine
