"""Items as columns of a collection, in batches that one request carries."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from proxyhash.codes.bits import Packed
from proxyhash.index.local.items import FileFacts, Item, Labels, labels_as_text, labels_from
from proxyhash.index.milvus.collection import LONGEST_KEY, LONGEST_TEXT
from proxyhash.utils.errors import InputError

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20  # a quarter of what a server takes in one request
_PLAIN = "/ ,:+=@()[]&!"  # what a key keeps, beside letters, digits and _.-~; quotes and backslashes upset expressions


class Positions:
    """Numbers for new items that grow with time: microseconds since 1970, and never the same twice from one process."""

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), 0

    def take(self, count: int) -> range:
        """Return so many numbers."""
        with self._lock:
            first = max(self._next, time.time_ns() // 1000)
            self._next = first + count
            return range(first, first + count)


@dataclass(frozen=True, eq=False)
class Rows:
    """What is stored of each item: keys, packed `codes` (n, bytes), positions, and texts of its labels and its file."""

    keys: Sequence[str]
    codes: Packed
    positions: Sequence[int]
    labels: Sequence[str]
    files: Sequence[str]

    def columns(self, rows: slice) -> dict[str, list[Any]]:
        """Return some of them, field by field."""
        return {
            "key": list(self.keys[rows]),
            "code": [code.tobytes() for code in self.codes[rows]],
            "position": list(self.positions[rows]),
            "labels": list(self.labels[rows]),
            "file": list(self.files[rows]),
        }

    def batches(self) -> Iterator[slice]:
        """Yield them in order, as many at a time as a request should carry."""
        first, size = 0, 0
        for number, texts in enumerate(zip(self.keys, self.labels, self.files, strict=True)):
            weight = self.codes.shape[1] + 8 + 4 * sum(map(len, texts))  # a character has four bytes at most
            if number > first and (number - first >= BATCH_ROWS or size + weight > BATCH_BYTES):
                yield slice(first, number)
                first, size = number, 0
            size += weight
        if first < len(self.keys):
            yield slice(first, len(self.keys))


def rows_of(
    codes: Packed, keys: Sequence[str], labels: Labels | None, positions: range, files: Sequence[str] | None = None
) -> Rows:
    """Return items as they are stored; `files` are texts that `file_text` made."""
    texts = [""] * len(keys) if labels is None else [text or "" for text in labels_as_text(labels)]
    for key, text in zip(keys, texts, strict=True):
        if len(text) > LONGEST_TEXT // 4 and len(text.encode()) > LONGEST_TEXT:
            raise InputError(f"The labels of {key} have more than {LONGEST_TEXT:,} bytes.")
    return Rows([stored_key(key) for key in keys], codes, positions, texts, files or [""] * len(keys))


def stored_key(key: str) -> str:
    """Return a key as it is stored: text that no expression of Milvus can misread."""
    stored = quote(key, safe=_PLAIN)
    if len(stored) > LONGEST_KEY:
        raise InputError(f"A key may have {LONGEST_KEY:,} characters on Milvus; {key[:60]}... is longer.")
    return stored


def given_key(stored: str) -> str:
    """Return a key as it was given."""
    return unquote(stored)


def file_text(source: str, path: Path, facts: FileFacts) -> str:
    """Return where an item came from: first the digits of its folder, by which all items of a folder are found."""
    return f"{source} {facts.size} {facts.modified} {path}"


def facts_from(text: str) -> FileFacts:
    """Return what was known of an item's file."""
    _, size, modified, _ = text.split(" ", 3)
    return FileFacts(int(size), int(modified))


def item_of(row: dict[str, Any]) -> Item:
    """Return an item as it is stored."""
    path = Path(row["file"].split(" ", 3)[3]) if row["file"] else None
    return Item(row["position"], given_key(row["key"]), labels_from(row["labels"]), path)
