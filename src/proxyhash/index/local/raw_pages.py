"""Pages of a SQLite file, read without SQLite, for files that it cannot read any more.

Rows are taken from the leaf pages of tables wherever these are, so that damage to a page loses the rows of that page only.
The format is described in https://www.sqlite.org/fileformat.html. What is read may be arbitrary bytes: callers accept a row
only if its checksum matches.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE_BYTES = 8192  # of an index
_LEAF_TABLE, _INTERIOR_TABLE, _LEAF_INDEX = 0x0D, 0x05, 0x0A
_MAX_INDEX_CELLS = 16  # on a page of `meta`, the only table without row ids; the indexes of other tables are not needed
_LOG_MAGICS = (0x377F0682, 0x377F0683)
_LOG_HEADER, _FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)  # of the serial types 0 to 6

Value = int | float | str | bytes | None


class RawRow(NamedTuple):
    """One row: its row id (None in a table without row ids), and its columns; the primary key may be None there."""

    row_id: int | None
    values: tuple[Value, ...]


class Header(NamedTuple):
    """Fields of the first page."""

    page_bytes: int
    pages: int
    first_trunk: int  # of the list of free pages
    user_version: int


def read_header(page: bytes) -> Header | None:
    """Return the fields of a first page, None if it is damaged."""
    if len(page) < 100 or not page.startswith(_MAGIC):
        return None
    size = int.from_bytes(page[16:18], "big")
    size = 65_536 if size == 1 else size
    if size < 512 or size & (size - 1):
        return None
    pages, trunk = struct.unpack(">2I", page[28:36])
    return Header(size, pages, trunk, int.from_bytes(page[60:64], "big"))


class RawPages:
    """The pages of a file with those of its log laid over them, as they were after the last commit.

    A frame of the log counts if it belongs to the log, also after damaged frames, where SQLite ends: pages in a log are
    complete, and rows have checksums.
    """

    def __init__(self, path: Path) -> None:
        self._content = _map(path)
        self._log = _map(path.with_name(f"{path.name}-wal"))
        header = read_header(self._content[:100])
        self.page_bytes = header.page_bytes if header else self._page_bytes_of_log() or _DEFAULT_PAGE_BYTES
        self._frames = self._read_log()
        self._current = dict(self._frames)  # the last one of each page
        self.header = read_header(self.page(1)[:100])
        in_file = len(self._content) // self.page_bytes
        self.count = max([in_file, *self._current])

    def page(self, number: int) -> bytes:
        """Return the content of a page, from 1 on; empty if it is missing."""
        if number in self._current:
            return self._log[self._current[number] : self._current[number] + self.page_bytes]
        return self._page_in_file(number)

    def _page_in_file(self, number: int) -> bytes:
        page = self._content[(number - 1) * self.page_bytes : number * self.page_bytes]
        return page if len(page) == self.page_bytes else b""

    def _page_bytes_of_log(self) -> int | None:
        if len(self._log) < _LOG_HEADER.size:
            return None
        magic, _, size, *_ = _LOG_HEADER.unpack_from(self._log)
        return size if magic in _LOG_MAGICS and 512 <= size <= 65_536 and not size & (size - 1) else None

    def _read_log(self) -> list[tuple[int, int]]:
        """Return number and offset of each page in the log, up to the last commit, in the order they were written."""
        if len(self._log) < _LOG_HEADER.size:
            return []
        magic, *_, salt, other_salt, _, _ = _LOG_HEADER.unpack_from(self._log)
        salts = salt, other_salt
        if magic not in _LOG_MAGICS and len(self._log) >= _LOG_HEADER.size + _FRAME_HEADER.size:  # take those of a frame
            salts = _FRAME_HEADER.unpack_from(self._log, _LOG_HEADER.size)[2:4]
        found: list[tuple[int, int]] = []
        committed = 0
        step = _FRAME_HEADER.size + self.page_bytes
        for offset in range(_LOG_HEADER.size, len(self._log) - step + 1, step):
            number, pages, *rest = _FRAME_HEADER.unpack_from(self._log, offset)
            if tuple(rest[:2]) != salts or not number:
                continue  # a damaged frame, or one of an older log
            found.append((number, offset + _FRAME_HEADER.size))
            if pages:
                committed = len(found)
        return found[:committed]

    def current_cells(self) -> Iterator[list[RawRow]]:
        """Yield the rows of all tables in the last state, page by page: of all pages that are not free."""
        free = self._free_pages()
        for number in range(2, self.count + 1):
            if number not in free:
                yield self._cells(self.page(number))

    def old_cells(self) -> Iterator[list[RawRow]]:
        """Yield rows in free pages, and in pages that were written again later: any may have been removed."""
        for number in sorted(self._free_pages()):
            yield self._cells(self.page(number))
        for number in self._current:
            yield self._cells(self._page_in_file(number))
        for number, offset in self._frames:
            if self._current[number] != offset:
                yield self._cells(self._log[offset : offset + self.page_bytes])

    def _cells(self, page: bytes) -> list[RawRow]:
        """Return the rows of a leaf page that can be read; nothing for other pages."""
        if not page or page[0] not in (_LEAF_TABLE, _LEAF_INDEX):
            return []
        count = int.from_bytes(page[3:5], "big")
        if page[0] == _LEAF_INDEX and count > _MAX_INDEX_CELLS:
            return []
        pointers = range(8, min(8 + 2 * count, len(page) - 1), 2)
        cells = (self._cell(page, page[pointer] << 8 | page[pointer + 1]) for pointer in pointers)
        return [cell for cell in cells if cell is not None]

    def _cell(self, page: bytes, start: int) -> RawRow | None:
        """Return the row that starts at an offset of a page, None if it cannot be read."""
        try:
            size, start = _varint(page, start)
            row_id = None
            if page[0] == _LEAF_TABLE:
                row_id, start = _varint(page, start)
            payload = self._payload(page, start, size)
            return None if payload is None else RawRow(row_id, _record(payload))
        except (IndexError, ValueError, struct.error):  # UnicodeDecodeError is a ValueError
            return None

    def _payload(self, page: bytes, start: int, size: int) -> bytes | None:
        """Return the content of a row, the part on overflow pages included."""
        usable = self.page_bytes  # an index reserves no bytes at the end of a page
        least = (usable - 12) * 32 // 255 - 23
        most = usable - 35 if page[0] == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return page[start : start + size]
        if size > self.count * usable:
            return None
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
        parts = [page[start : start + local]]
        following, left = int.from_bytes(page[start + local : start + local + 4], "big"), size - local
        while left > 0:
            overflow = self.page(following) if following else b""
            if not overflow:
                return None
            parts.append(overflow[4 : 4 + left])
            left -= len(parts[-1])
            following = int.from_bytes(overflow[:4], "big")
        return b"".join(parts)

    def _free_pages(self) -> set[int]:
        """Return the numbers of the free pages: of the list in the header, or of all pages that look like parts of it."""
        children = self._children()
        if self.header is None:
            trunks = [number for number in range(2, self.count + 1) if self._free_leaves(number) and number not in children]
        else:
            trunks = self._list_trunks(self.header.first_trunk)
        free = {*trunks, *(leaf for trunk in trunks for leaf in self._free_leaves(trunk))}
        return free - children

    def _list_trunks(self, first: int) -> list[int]:
        trunks: list[int] = []
        seen = {0}
        while first not in seen and first <= self.count:
            trunks.append(first)
            seen.add(first)
            first = int.from_bytes(self.page(first)[:4], "big")
        return trunks

    def _free_leaves(self, trunk: int) -> list[int]:
        """Return the free pages that a page lists, none if it is no page of that list."""
        page = self.page(trunk)
        if not page:
            return []
        following, count = struct.unpack_from(">2I", page)
        if following > self.count or not 0 < count <= self.page_bytes // 4 - 2:
            return []
        leaves = np.frombuffer(page, ">u4", count, 8)
        is_list = ((leaves > 1) & (leaves <= self.count)).all() and len(np.unique(leaves)) == count
        return leaves.tolist() if is_list else []

    def _children(self) -> set[int]:
        """Return the numbers of the pages that inner pages of tables refer to, which are not free."""
        found: set[int] = set()
        for number in range(2, self.count + 1):
            page = self.page(number)
            if not page or page[0] != _INTERIOR_TABLE:
                continue
            pointers = range(12, min(12 + 2 * int.from_bytes(page[3:5], "big"), len(page) - 1), 2)
            starts = (page[pointer] << 8 | page[pointer + 1] for pointer in pointers)
            found.update(int.from_bytes(page[start : start + 4], "big") for start in (8, *starts))
        return found


def _map(path: Path) -> bytes | mmap.mmap:
    """Return the content of a file, which need not fit in memory; nothing if it is missing or empty."""
    if not path.is_file() or not path.stat().st_size:
        return b""
    with path.open("rb") as handle:
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """Return a number of 1 to 9 bytes, and the offset after it."""
    value = 0
    for offset in range(start, start + 8):
        byte = content[offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + 1
    value = value << 8 | content[start + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, start + 9


def _record(payload: bytes) -> tuple[Value, ...]:
    """Return the columns of a row."""
    end, at = _varint(payload, 0)
    types = []
    while at < end:
        kind, at = _varint(payload, at)
        types.append(kind)
    values = []
    for kind in types:
        value, at = _value(payload, at, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    """Return one column by its serial type, and the offset after it."""
    if kind in (8, 9):
        return kind - 8, at
    size = _INTEGER_BYTES[kind] if kind < 7 else 8 if kind == 7 else (kind - 12) // 2
    content = payload[at : at + size]
    if len(content) < size or kind in (10, 11) or kind < 0:
        raise ValueError("a column does not fit")
    if kind == 0:
        return None, at
    if kind < 7:
        return int.from_bytes(content, "big", signed=True), at + size
    if kind == 7:
        return struct.unpack(">d", content)[0], at + size
    return content.decode() if kind % 2 else content, at + size
