"""Content of an index or of a file of codes, read in batches, and its checksums."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from proxyhash.codes.bits import MAX_BITS, Packed
from proxyhash.index.local.items import Item
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.progress import Progress

FORMAT = "proxyhash.items/1"
BATCH_SIZE = 65_536  # items that are read from a file at a time


_encode_lines = msgspec.json.Encoder().encode_lines


class ItemLine(msgspec.Struct):
    """One item in JSON: key, labels, and the file that it was encoded from."""

    key: str
    labels: tuple[str, ...] = ()
    path: str | None = None


@dataclass(frozen=True, eq=False)
class CodeBatch:
    """n items: keys, labels, packed codes (n, bytes), and the files that they were encoded from, where known."""

    keys: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    codes: Packed
    paths: Sequence[str | None]

    def __len__(self) -> int:
        """Return n."""
        return len(self.keys)


def make_batch(items: Sequence[Item], codes: Packed) -> CodeBatch:
    """Return items of an index with their codes (n, bytes)."""
    paths = [None if item.path is None else str(item.path).encode(errors="replace").decode() for item in items]
    return CodeBatch([item.key for item in items], [item.labels for item in items], codes, paths)


@dataclass(frozen=True, eq=False)
class CodeContent:
    """Items and their codes.

    `read` yields the same batches in the same order each time. `count` is an estimate for an index on a server. `model` is
    the fingerprint of the model, `centroids` (C, bytes) are those of the clusters, and `header` is what a file that this
    package exported says about its content; each may be absent.
    """

    bits: int
    count: int
    read: Callable[[], Iterator[CodeBatch]]
    model: str | None = None
    centroids: Packed | None = None
    header: "ContentHeader | None" = None

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
    """Description of exported items: code length, model, number of items, and the SHA-256 of items and codes."""

    bits: int
    model: str | None
    items: int
    items_sha256: str
    codes_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, and the format, for JSON."""
        return {"format": FORMAT, REQUIRES: RELEASE, **asdict(self)}

    @classmethod
    def parse(cls, fields: Any, path: Path) -> "ContentHeader":
        """Return the header of a file from JSON; anything else is an InputError."""
        if not isinstance(fields, dict):
            raise InputError(f"{path} is not a file of the format {FORMAT}.")
        check_format(path, fields.get("format"), (FORMAT,), fields.get(REQUIRES))
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
        rows = zip(batch.keys, batch.labels, batch.paths, strict=True)
        lines = _encode_lines([ItemLine(*row) for row in rows])
        self._count += len(batch)
        self._items.update(lines)
        self._codes.update(batch.codes.tobytes())
        return lines

    def header(self, bits: int, model: str | None) -> ContentHeader:
        """Return the description of all batches."""
        return ContentHeader(bits, model, self._count, self._items.hexdigest(), self._codes.hexdigest())


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
