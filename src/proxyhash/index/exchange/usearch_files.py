"""Files of usearch: a graph over binary codes with the Hamming metric."""

from pathlib import Path

import numpy as np

from proxyhash.index.exchange.content import CodeContent
from proxyhash.index.exchange.item_lines import item_lines_writer
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError


def write_usearch(path: Path, content: CodeContent) -> int:
    """Write codes for usearch, which holds all of them in memory, and return their number.

    The keys of usearch, which are integers, are rows of the file of items.
    """
    try:
        from usearch.index import Index
    except ImportError:
        raise InputError("Files of usearch need usearch: pip install 'proxyhash[usearch]'.") from None
    engine = Index(ndim=content.bits, metric="hamming", dtype="b1")
    with atomic_write(path) as temporary, item_lines_writer(path, content) as lines:
        for batch in content.read():
            first = len(engine)
            engine.add(np.arange(first, first + len(batch), dtype=np.uint64), np.ascontiguousarray(batch.codes))
            lines.add(batch)
        engine.save(str(temporary))
    return len(engine)
