"""Items as columns of a Milvus collection, in batches that one request carries."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from proxyhash.codes.bits import Packed
from proxyhash.index.local.items import FileStat, Labels, labels_to_json
from proxyhash.index.milvus.collection import ATTRIBUTES, MAX_KEY_BYTES, MAX_TEXT_BYTES
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import MILVUS_ITEM_ID

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20  # a quarter of what a server accepts in one request
_SAFE = "/ ,:+=@()[]&!"  # characters that a key keeps, with letters, digits and _.-~; quotes would break filter expressions


class ItemIdGenerator:
    """Ids of new items that grow with time: microseconds since 1970, unique in a process."""

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), 0

    def take(self, count: int) -> range:
        """Return so many ids."""
        with self._lock:
            first = max(self._next, time.time_ns() // 1000)
            self._next = first + count
            return range(first, first + count)


@dataclass(frozen=True, eq=False)
class Rows:
    """Stored fields of n items: keys, packed `codes` (n, bytes), item ids, the texts of labels and files, and `attributes`.

    A collection of an older release has no attributes.
    """

    keys: Sequence[str]
    codes: Packed
    item_ids: Sequence[int]
    labels: Sequence[str]
    files: Sequence[str]
    attributes: Sequence[dict[str, Any]] | None = None

    def columns(self, rows: slice) -> dict[str, list[Any]]:
        """Return some rows, field by field."""
        fields: dict[str, list[Any]] = {
            "key": list(self.keys[rows]),
            "code": [code.tobytes() for code in self.codes[rows]],
            MILVUS_ITEM_ID: list(self.item_ids[rows]),
            "labels": list(self.labels[rows]),
            "file": list(self.files[rows]),
        }
        return fields if self.attributes is None else {**fields, ATTRIBUTES: list(self.attributes[rows])}

    def batches(self) -> Iterator[slice]:
        """Yield slices of the rows in order, as many rows as a request should carry."""
        first, size = 0, 0
        for number, texts in enumerate(zip(self.keys, self.labels, self.files, strict=True)):
            attributes = 0 if self.attributes is None else len(json.dumps(self.attributes[number]))
            weight = self.codes.shape[1] + 8 + attributes + 4 * sum(map(len, texts))  # a character has four bytes at most
            if number > first and (number - first >= BATCH_ROWS or size + weight > BATCH_BYTES):
                yield slice(first, number)
                first, size = number, 0
            size += weight
        if first < len(self.keys):
            yield slice(first, len(self.keys))


def make_rows(
    codes: Packed,
    keys: Sequence[str],
    labels: Labels | None,
    item_ids: range,
    files: Sequence[str] | None = None,
    attributes: Sequence[dict[str, Any]] | None = None,
) -> Rows:
    """Return items as they are stored; `files` are texts of `format_file`, and `attributes` are from `make_attributes`."""
    texts = [""] * len(keys) if labels is None else [text or "" for text in labels_to_json(labels)]
    for key, text in zip(keys, texts, strict=True):
        if len(text) > MAX_TEXT_BYTES // 4 and len(text.encode()) > MAX_TEXT_BYTES:
            raise InputError(f"The labels of {key} have more than {MAX_TEXT_BYTES:,} bytes.")
    return Rows([quote_key(key) for key in keys], codes, item_ids, texts, files or [""] * len(keys), attributes)


def quote_key(key: str) -> str:
    """Return a key as it is stored: text that is safe inside a filter expression."""
    stored = quote(key, safe=_SAFE)
    if len(stored) > MAX_KEY_BYTES:
        raise InputError(f"A key may have {MAX_KEY_BYTES:,} characters on Milvus; {key[:60]}... is longer.")
    return stored


def unquote_key(stored: str) -> str:
    """Return a key as it was given."""
    return unquote(stored)


def label_condition(labels: Sequence[str]) -> str:
    """Return the filter expression for items with at least one of some labels.

    Labels are stored as a JSON list. A label in quotes is an element of it if a bracket or a comma and a space come before:
    quotes inside a label follow a backslash. Only the label ", " cannot be told from what is between two labels.
    """
    if ", " in labels:
        raise InputError("Milvus cannot search for the label ', '; choose another one.")
    texts = [json.dumps(label, ensure_ascii=False) for label in labels]
    return " or ".join(f"labels like {_contains(before + text)}" for text in texts for before in ("[", ", "))


def _contains(text: str) -> str:
    """Return the pattern of texts that contain another one, as a string of a filter expression."""
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return json.dumps(f"%{text}%", ensure_ascii=False)


def source_digest(root: Path, prefix: str) -> str:
    """Return the digest of a folder and the prefix of its keys."""
    return hashlib.blake2b(f"{root}\0{prefix}".encode(errors="surrogateescape"), digest_size=16).hexdigest()


def format_file(source: str, path: Path, stat: FileStat) -> str:
    """Return the stored text of a file; it begins with the digest of its folder, by which items of a folder are found."""
    return f"{source} {stat.size} {stat.mtime_ns} {path}"


def parse_file_stat(text: str) -> FileStat:
    """Return size and time from the stored text of a file."""
    _, size, mtime_ns, _ = text.split(" ", 3)
    return FileStat(int(size), int(mtime_ns))


def parse_path(text: str) -> Path | None:
    """Return the path from the stored text of a file; None for an item without a file."""
    return Path(text.split(" ", 3)[3]) if text else None


def parse_root(text: str, key: str) -> Path | None:
    """Return the folder of an item from the stored text of its file: that parent of its path whose digest is stored."""
    path = parse_path(text)
    for parent in () if path is None else path.parents:
        inside = str(path)[len(str(parent)) :].lstrip("/")
        if key.endswith(inside) and text.startswith(source_digest(parent, key.removesuffix(inside))):
            return parent
    return None
