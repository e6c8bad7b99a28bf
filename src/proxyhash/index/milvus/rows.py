"""Items as rows of a collection, in batches that one request carries."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from proxyhash.codes.bits import Packed
from proxyhash.index.items import FileFacts, Item, Labels, labels_as_text
from proxyhash.index.milvus.collection import LONGEST_KEY, LONGEST_LABELS
from proxyhash.support.errors import InputError

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20  # a quarter of what a server takes in one request
_PLAIN = "/ ,:+=@()[]&!"  # what a key keeps, beside letters, digits and _.-~; quotes and backslashes upset expressions


class Positions:
    """Numbers for new items that grow with time: microseconds since 1970, and never the same twice from one process."""

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), 0

    def take(self, count: int) -> int:
        """Return the first of so many numbers."""
        with self._lock:
            first = max(self._next, time.time_ns() // 1000)
            self._next = first + count
            return first


def stored_key(key: str) -> str:
    """Return a key as it is stored: text that no expression of Milvus can misread."""
    stored = quote(key, safe=_PLAIN)
    if len(stored) > LONGEST_KEY:
        raise InputError(f"A key may have {LONGEST_KEY:,} characters on Milvus; {key[:60]}... is longer.")
    return stored


def given_key(stored: str) -> str:
    """Return a key as it was given."""
    return unquote(stored)


def rows_of(
    codes: Packed,
    keys: Sequence[str],
    labels: Labels | None,
    first: int,
    source: str = "",
    files: Sequence[tuple[Path, FileFacts]] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of items at positions from `first` on; `files` are where each came from."""
    texts = [None] * len(keys) if labels is None else labels_as_text(labels)
    rows = []
    for number, (code, key, text) in enumerate(zip(codes, keys, texts, strict=True)):
        if text is not None and len(text.encode()) > LONGEST_LABELS:
            raise InputError(f"The labels of {key} have more than {LONGEST_LABELS:,} bytes.")
        row: dict[str, Any] = {"key": stored_key(key), "code": code.tobytes(), "position": first + number}
        row |= {"labels": text or "", "source": source, "path": "", "size": -1, "modified": -1}
        if files is not None:
            path, facts = files[number]
            row |= {"path": str(path), "size": facts.size, "modified": facts.modified}
        rows.append(row)
    return rows


def batches(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield rows in order, as many at a time as a request should carry."""
    first, size = 0, 0
    for number, row in enumerate(rows):
        weight = len(row["key"]) + len(row["code"]) + 4 * len(row["labels"]) + 4 * len(row["path"]) + 64
        if number > first and (number - first >= BATCH_ROWS or size + weight > BATCH_BYTES):
            yield rows[first:number]
            first, size = number, 0
        size += weight
    if first < len(rows):
        yield rows[first:]


def labels_from(text: str) -> tuple[str, ...]:
    """Return labels from their text."""
    return tuple(json.loads(text)) if text else ()


def item_of(row: dict[str, Any]) -> Item:
    """Return an item as it is stored."""
    path = Path(row["path"]) if row["path"] else None
    return Item(row["position"], given_key(row["key"]), labels_from(row["labels"]), path)
