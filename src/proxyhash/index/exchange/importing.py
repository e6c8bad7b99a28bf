"""Import of a file of codes, all of which is read and checked before anything is added."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.columns import check_name
from proxyhash.index.base import Index
from proxyhash.index.exchange.content import CodeContent, ContentDigest
from proxyhash.index.exchange.extraction import read_extracted
from proxyhash.index.exchange.formats import choose_format
from proxyhash.index.exchange.npz_files import read_npz
from proxyhash.index.exchange.parquet_files import read_parquet
from proxyhash.index.local.items import check_keys, labels_to_json
from proxyhash.index.queries import check_codes
from proxyhash.index.results import AddResult
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


@contextmanager
def open_codes(
    path: Path, format: str | None = None, *, bits: int | None = None, progress: Progress = no_progress
) -> Iterator[CodeContent]:
    """Yield the content of a file after all of it was checked.

    Parameters
    ----------
    path
        A file of faiss, usearch, parquet or numpy.
    format
        Its format; None: by the ending, and numpy for other endings.
    bits
        Length of the codes, if the file does not state it and its codes are padded to whole bytes.
    progress
        Called with the share that is checked.

    Raises
    ------
    InputError
        If the file is damaged, or its keys, labels or codes cannot be those of an index.
    """
    with _open(path, format, bits) as content:
        _check(content.with_progress(progress, "checking"), path)
        yield content


def _open(path: Path, format: str | None, bits: int | None) -> AbstractContextManager[CodeContent]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    known = format is not None or path.suffix.lower() in (".faiss", ".usearch", ".parquet")
    chosen = choose_format(path, format) if known else "npz"  # files of codes may have other endings, such as .mat
    if chosen == "npz":
        return read_npz(path, bits)
    return read_parquet(path, bits) if chosen == "parquet" else read_extracted(chosen, path, bits)


def add_content(index: Index, content: CodeContent, path: Path, progress: Progress = no_progress) -> AddResult:
    """Add items that were checked, in batches; after an error in between, adding them again completes them."""
    if content.bits != index.bits:
        raise InputError(f"{path} holds codes of {content.bits} bits, and the index has {index.bits}.")
    check_model(content, index.model, path)
    _check_types(content, index, path)
    start, added, replaced = time.monotonic(), 0, 0
    for batch in content.with_progress(progress, "importing").read():
        columns = {name: column.to_list() for name, column in batch.columns.items()}
        done = index.add(batch.codes, batch.keys, batch.labels, columns=columns or None)
        added, replaced = added + done.added, replaced + done.replaced
    return AddResult(added, replaced, seconds=time.monotonic() - start)


def check_model(content: CodeContent, model: str | None, path: Path) -> None:
    """Raise an InputError unless codes may be added to an index of a model."""
    if model is not None and content.model is None:
        raise InputError(
            f"The index holds codes of a model, and {path} does not name the model of its codes; add the originals."
        )
    if model is not None and content.model != model:
        raise InputError(f"{path} holds codes of another model than the index; nothing was added.")


def _check_types(content: CodeContent, index: Index, path: Path) -> None:
    """Raise an InputError if a column of the index has another type."""
    types = index.columns if content.columns else {}
    for name, kind in content.columns.items():
        own = types.get(name, kind)
        if own != kind:
            raise InputError(f"{path} has {kind}s in the column {name}, and the index {own}s; rename the column.")


def _check(content: CodeContent, path: Path) -> None:
    """Read everything, and raise an InputError for what an index would not take, or for damage."""
    digest, hashes = ContentDigest(), [np.zeros(0, np.int64)]
    for batch in content.read():
        check_codes(batch.codes, content.bits)
        check_keys(batch.keys, len(batch))
        labels_to_json(batch.labels)
        for name in batch.columns:
            check_name(name)
        hashes.append(np.fromiter(map(hash, batch.keys), np.int64, len(batch)))
        if content.header is not None:
            digest.add(batch)
    if content.header not in (None, digest.header(content)):
        raise InputError(f"{path} is damaged or was changed: it does not match its checksum; export it again.")
    _check_unique(content, np.concatenate(hashes), path)


def _check_unique(content: CodeContent, hashes: NDArray[np.int64], path: Path) -> None:
    """Raise an InputError if a key occurs twice; keys with equal hashes are compared."""
    hashes.sort()
    suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    if not suspects:
        return
    seen: set[str] = set()
    for batch in content.read():
        for key in batch.keys:
            if hash(key) in suspects:
                if key in seen:
                    raise InputError(f"Each key may occur once in {path}; {key} occurs twice.")
                seen.add(key)
