"""Content of an index or of a file of codes, read in batches, and its checksums."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from proxyhash.codes.bits import MAX_BITS, Packed
from proxyhash.columns import Column, ColumnType, make_column, to_json_value
from proxyhash.index.local.items import Item
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.progress import Progress

FORMAT = "proxyhash.items/1"
FORMAT_WITH_COLUMNS = "proxyhash.items/2"
BATCH_SIZE = 65_536  # items that are read from a file at a time


_encode_lines = msgspec.json.Encoder().encode_lines


class ItemLine(msgspec.Struct):
    """One item in JSON: key, labels, and the file that it was encoded from."""

    key: str
    labels: tuple[str, ...] = ()
    path: str | None = None


class ColumnLine(ItemLine):
    """One item in JSON with the values of its columns; an item without them is an `ItemLine`, as older releases wrote it."""

    columns: dict[str, str | int | float] = {}


@dataclass(frozen=True, eq=False)
class CodeBatch:
    """n items: keys, labels, packed codes (n, bytes), the files that they were encoded from, where known, and columns."""

    keys: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    codes: Packed
    paths: Sequence[str | None]
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return n."""
        return len(self.keys)


def make_batch(items: Sequence[Item], codes: Packed, types: Mapping[str, ColumnType]) -> CodeBatch:
    """Return items of an index with their codes (n, bytes); `types` are those of all its columns."""
    paths = [None if item.path is None else str(item.path).encode(errors="replace").decode() for item in items]
    columns = {name: make_column(name, [item.columns.get(name) for item in items], types[name]) for name in sorted(types)}
    return CodeBatch([item.key for item in items], [item.labels for item in items], codes, paths, columns)


@dataclass(frozen=True, eq=False)
class CodeContent:
    """Items and their codes.

    `read` yields the same batches in the same order each time. `count` is an estimate for an index on a server. `model` is
    the fingerprint of the model, `centroids` (C, bytes) are those of the clusters, and `header` is what a file that this
    package exported says about its content; each may be absent. `columns` are the types of all columns, and
    `fractions` the names of those whose numbers are not all whole.
    """

    bits: int
    count: int
    read: Callable[[], Iterator[CodeBatch]]
    model: str | None = None
    centroids: Packed | None = None
    header: "ContentHeader | None" = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    fractions: frozenset[str] = frozenset()

    def with_progress(self, progress: Progress, work: str) -> "CodeContent":
        """Return the same content, which reports how much of it was read."""

        def read() -> Iterator[CodeBatch]:
            done = 0
            for batch in self.read():
                yield batch
                done += len(batch)
                progress(work, min(1.0, done / max(1, self.count)))

        return replace(self, read=read)


@dataclass(frozen=True)
class ContentHeader:
    """Description of exported items: code length, model, number of items, SHA-256 of items and codes, types of columns."""

    bits: int
    model: str | None
    items: int
    items_sha256: str
    codes_sha256: str
    columns: dict[str, ColumnType] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, and the format, for JSON; without columns, as older releases read it."""
        fields = {"format": FORMAT_WITH_COLUMNS if self.columns else FORMAT, REQUIRES: RELEASE, **asdict(self)}
        return {name: value for name, value in fields.items() if name != "columns" or value}

    @classmethod
    def parse(cls, fields: Any, path: Path) -> "ContentHeader":
        """Return the header of a file from JSON; anything else is an InputError."""
        if not isinstance(fields, dict):
            raise InputError(f"{path} is not a file of the format {FORMAT}.")
        check_format(path, fields.get("format"), (FORMAT_WITH_COLUMNS, FORMAT), fields.get(REQUIRES))
        own = {name: value for name, value in fields.items() if name not in ("format", REQUIRES)}
        try:
            return msgspec.convert(own, cls)
        except msgspec.ValidationError as error:
            raise InputError(f"{path} is damaged: {error}.") from None


class ContentDigest:
    """Running SHA-256 of items and of codes."""

    def __init__(self) -> None:
        self._count, self._items, self._codes = 0, hashlib.sha256(), hashlib.sha256()

    def add(self, batch: CodeBatch) -> bytes:
        """Add a batch, and return its items as JSON Lines."""
        rows = zip(batch.keys, batch.labels, batch.paths, _column_rows(batch), strict=True)
        lines = _encode_lines([ColumnLine(*row) if row[3] else ItemLine(*row[:3]) for row in rows])
        self._count += len(batch)
        self._items.update(lines)
        self._codes.update(batch.codes.tobytes())
        return lines

    def header(self, content: CodeContent) -> ContentHeader:
        """Return the description of all batches of some content."""
        digests = self._items.hexdigest(), self._codes.hexdigest()
        return ContentHeader(content.bits, content.model, self._count, *digests, dict(sorted(content.columns.items())))


def _column_rows(batch: CodeBatch) -> list[dict[str, Any]]:
    """Return the values of each item for JSON, without those that are missing."""
    out: list[dict[str, Any]] = [{} for _ in batch.keys]
    for name in sorted(batch.columns):
        for row, value in zip(out, batch.columns[name].to_list(), strict=True):
            if value is not None:
                row[name] = to_json_value(value)
    return out


def resolve_bits(path: Path, width: int, stated: int | None, given: int | None) -> int:
    """Return the length of codes of `width` bytes: as the file states it, as the user gives it, or all bits of the bytes."""
    if stated is not None and given is not None and stated != given:
        raise InputError(f"{path} holds codes of {stated} bits, not {given}.")
    bits = stated or given or 8 * width
    if (bits + 7) // 8 != width or bits > MAX_BITS:
        raise InputError(
            f"{path} holds codes of {width:,} bytes, and {bits:,} bits do not fit; codes have up to {MAX_BITS} bits."
        )
    return bits
