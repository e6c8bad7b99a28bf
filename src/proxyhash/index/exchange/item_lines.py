"""The file beside an exported faiss or usearch file, which holds ids and codes only: a header and one line for each item.

The line of the item with id n is line n + 2. All lines are JSON.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from proxyhash.index.exchange.content import BATCH_SIZE, CodeBatch, CodeContent, ColumnLine, ContentDigest, ContentHeader
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.json_lines import dump_json_line, parse_json_line

SUFFIX = ".items.jsonl"
_HEADER_BYTES = 512  # room for the header, which is written last and padded with spaces
_MAX_LINE_BYTES = 16 << 20


def item_lines_path(path: Path) -> Path:
    """Return the path of the items that belong to a file of codes."""
    return path.with_name(path.name + SUFFIX)


class ItemLinesWriter:
    """Writer of the lines, batch by batch."""

    def __init__(self, handle: BinaryIO, content: CodeContent) -> None:
        self._handle, self._content, self._digest = handle, content, ContentDigest()
        self._header_bytes = _HEADER_BYTES + len(dump_json_line(dict(content.columns)))
        handle.write(b"\n".rjust(self._header_bytes))

    def add(self, batch: CodeBatch) -> None:
        """Write the lines of some items."""
        self._handle.write(self._digest.add(batch))

    def finish(self) -> None:
        """Write the header."""
        line = dump_json_line(self._digest.header(self._content).as_dict())
        self._handle.seek(0)
        self._handle.write(line[:-1].ljust(self._header_bytes - 1))


@contextmanager
def item_lines_writer(path: Path, content: CodeContent) -> Iterator[ItemLinesWriter]:
    """Yield the writer of the items that belong to a file of codes; they are complete when the block ends."""
    with atomic_write(item_lines_path(path)) as temporary, temporary.open("wb") as handle:
        writer = ItemLinesWriter(handle, content)
        yield writer
        writer.finish()


def read_header(path: Path) -> ContentHeader:
    """Return the header of a file of items."""
    with path.open("rb") as handle:
        line = _read_line(handle, path, 1)
    try:
        fields = parse_json_line(line)
    except InputError as error:
        raise InputError(f"{path} is damaged: line 1: {error}.") from None
    return ContentHeader.parse(fields, path)


def read_items(path: Path) -> Iterator[list[ColumnLine]]:
    """Yield the items in batches of `BATCH_SIZE`."""
    decoder = msgspec.json.Decoder(ColumnLine)
    with path.open("rb") as handle:
        _read_line(handle, path, 1)
        lines = _lines(handle, path)
        while batch := list(islice(lines, BATCH_SIZE)):
            items = []
            for number, line in batch:
                try:
                    items.append(decoder.decode(line))
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                    raise InputError(f"{path} is damaged: line {number}: {error}.") from None
            yield items


def _lines(handle: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 2
    while line := _read_line(handle, path, number):
        yield number, line
        number += 1


def _read_line(handle: BinaryIO, path: Path, number: int) -> bytes:
    line = handle.readline(_MAX_LINE_BYTES)
    if line and not line.endswith(b"\n"):
        raise InputError(f"{path} is damaged: line {number} is not complete.")
    return line
