"""Intact rows of a damaged index: what SQLite reads, and what its pages hold where SQLite fails."""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.array_blocks import ArrayBlock, ArrayBlockInfo, has_valid_types, parse_block
from proxyhash.index.local.item_arrays import ArrayInfo, parse_array
from proxyhash.index.local.raw_pages import RawPages, RawRow
from proxyhash.index.local.schema import (
    META,
    META_2,
    META_3,
    TABLES,
    TABLES_2,
    TABLES_3,
    VECTORS,
    array_block_checksum,
    item_checksum,
    meta_checksum,
    row_checksum,
    source_checksum,
)
from proxyhash.index.local.store import VersionInfo
from proxyhash.utils.legacy_names import INDEX_META_1, INDEX_TABLES_1

_TABLES_1 = (*INDEX_TABLES_1, "sources", "blocks", "items")  # of release 0.1
INSERT_ITEM = "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?, ?, ?, ?)"
_TABLES_BY_FORMAT = {2: TABLES_2, 3: TABLES_3}  # of older formats
_VERSION_FIELDS = (1, 2, 4, 5, 6, 7, 8, 9)  # columns of `versions` in the order of `VersionInfo`


def _scratch() -> sqlite3.Connection:
    """Return tables of items and blocks of arrays that need not fit in memory; they are deleted when it is closed."""
    connection = sqlite3.connect("", isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE items(item_id INTEGER PRIMARY KEY, key, labels, source, size, mtime_ns, file_row)")
    columns = ", ".join(("array", "generation", *ArrayBlockInfo._fields, "item_ids", "data"))
    connection.execute(f"CREATE TABLE array_blocks({columns})")
    return connection


class CodeBlock(NamedTuple):
    """Item ids (n,) and codes (n, bytes) of an intact block, and the generation that wrote it."""

    generation: int
    item_ids: UInt32s
    codes: Packed
    info_checksum: int


@dataclass
class IntactRows:
    """Rows that match their checksums. Release 0.1 had checksums of blocks only; its other rows need the right types."""

    legacy: bool
    items: sqlite3.Connection = field(default_factory=_scratch)
    meta: dict[str, Any] = field(default_factory=dict)
    versions: dict[int, VersionInfo] = field(default_factory=dict)
    sources: dict[int, tuple[str, str, str | None]] = field(default_factory=dict)
    blocks: dict[tuple[int, int], CodeBlock] = field(default_factory=dict)
    arrays: dict[str, ArrayInfo] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)  # of columns, by code
    damaged: int = 0  # rows that SQLite reads, but that do not match their checksums

    def add(self, cells: Iterable[RawRow], *, known: bool = False) -> None:
        """Take the intact rows of one page, or of one table if that is known; of a block, the newest one."""
        items = []
        for cell in cells:
            if (item := as_item(cell, legacy=self.legacy)) is not None:
                items.append(item)
            elif (array_block := as_array_block(cell)) is not None:
                self.items.execute(f"INSERT INTO array_blocks VALUES ({', '.join('?' * len(array_block))})", array_block)
            elif (block := as_block(cell, legacy=self.legacy)) is not None:
                key, found = block
                if key not in self.blocks or self.blocks[key].generation < found.generation:
                    self.blocks[key] = found
            elif not self._add_small(cell):
                self.damaged += known
        self.items.executemany(INSERT_ITEM, items)

    def array_infos(self) -> dict[str, ArrayInfo]:
        """Return the descriptions of arrays; of vectors, also if that is lost, or of format 3."""
        found = dict(self.arrays)
        statement = "SELECT max(generation), count(*) FROM array_blocks WHERE array = ?"
        generation, count = self.items.execute(statement, (VECTORS,)).fetchone()
        num_vectors = int(self.meta.get("num_vectors", 0))
        if VECTORS not in found and (count or num_vectors):
            found[VECTORS] = ArrayInfo("{}", generation or 0, num_items=num_vectors)
        return found

    def find_rows(self, name: str, generation: int, item_ids: UInt32s) -> ArrayBlock | None:
        """Return the rows of some items, given by ascending ids, in an array; None if all are lost.

        A row may be in two blocks. It never changes, so that an old block of the same array is right too.
        """
        found: list[ArrayBlock] = []
        statement = "SELECT * FROM array_blocks WHERE array = ? AND generation = ? AND min_id <= ? AND max_id >= ?"
        ends = int(item_ids[-1]), int(item_ids[0])
        for _, _, *info, ids, data in self.items.execute(statement, (name, generation, *ends)):
            block = parse_block(ArrayBlockInfo(*info), ids, data)
            assert block is not None  # it was compared with its checksums before
            found.append(block.select(np.isin(block.item_ids, item_ids)))
        found = [block for block in found if len(block) and block.rows.shape[1] == found[0].rows.shape[1]]
        if not found:
            return None
        ids, first = np.unique(np.concatenate([block.item_ids for block in found]), return_index=True)
        return ArrayBlock(ids, np.concatenate([block.rows for block in found])[first])

    def _add_small(self, cell: RawRow) -> bool:
        """Take a row of `versions`, `sources`, `arrays` or `texts`."""
        number, values = cell
        if number is None:
            return False
        if (info := _as_version(number, values, legacy=self.legacy)) is not None:
            if number not in self.versions or not self.legacy:
                self.versions[number] = info
        elif (source := _as_source(number, values, legacy=self.legacy)) is not None:
            self.sources[number] = source
        elif (array := as_array(values)) is not None:
            name, found = array
            if name not in self.arrays or self.arrays[name].generation <= found.generation:
                self.arrays[name] = found
        elif not self.legacy and (text := as_text(number, values)) is not None:
            self.texts[number] = text
        else:
            return False
        return True

    def add_meta(self, cells: Iterable[RawRow]) -> None:
        """Take the table `meta` from the rows of a page, if they are that."""
        pairs: dict[Any, Any] = dict(cell.values for cell in cells if cell.row_id is None and len(cell.values) == 2)
        if self.legacy:
            if pairs.keys() == INDEX_META_1.keys() and all(isinstance(value, int) for value in pairs.values()):
                self.meta = {INDEX_META_1[name]: value for name, value in pairs.items()}
            return
        names = next((names for names in (META, META_3, META_2) if pairs.keys() == {*names, "checksum"}), None)
        is_meta = names is not None and meta_checksum(pairs, names) == pairs["checksum"]
        if is_meta and pairs["generation"] >= self.meta.get("generation", 0):
            self.meta = pairs

    def active_version(self) -> int | None:
        """Return the version that is searched; if that is not known, the one with the most codes."""
        if self.meta:
            return int(self.meta["active_version"])
        sizes: dict[int, int] = {}
        for (version, _), block in self.blocks.items():
            sizes[version] = sizes.get(version, 0) + len(block.item_ids)
        return max(sizes, key=lambda version: sizes[version], default=next(iter(self.versions), None))

    def has_all_blocks(self, version: int) -> bool:
        """Return whether the blocks are exactly those that the description of a version counts; False if unknown."""
        info = self.versions.get(version)
        if info is None or self.legacy:
            return False
        found = [block for (number, _), block in self.blocks.items() if number == version]
        totals = len(found), sum(len(block.item_ids) for block in found), sum(block.info_checksum for block in found)
        return totals == (info.num_blocks, info.num_codes, info.blocks_checksum)

    def is_complete(self) -> bool:
        """Return whether nothing is missing: there is an item for each code."""
        version = self.active_version()
        if not self.meta or version is None or self.damaged:
            return False
        count = self.items.execute("SELECT count(*) FROM items").fetchone()[0]
        coded = sum(len(block.item_ids) for (number, _), block in self.blocks.items() if number == version)
        return count == coded and (self.legacy or self.has_all_blocks(version))


def read_by_sql(path: Path, *, legacy: bool) -> tuple[IntactRows, bool]:
    """Return the intact rows that SQLite reads from a file and its log, and whether it finds no error in the file."""
    rows, ok = IntactRows(legacy), True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            (user_version,) = connection.execute("PRAGMA user_version").fetchone()
            for table in _TABLES_1 if legacy else _TABLES_BY_FORMAT.get(user_version, TABLES):
                ok = _read_table(connection, table, rows) and ok
            ok = ok and connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    except (sqlite3.Error, UnicodeDecodeError):  # a name in the message of an error may be damaged
        ok = False
    return rows, ok


def _read_table(connection: sqlite3.Connection, table: str, rows: IntactRows) -> bool:
    """Add the rows of a table up to the first that cannot be read; return whether all were read."""
    try:
        if table in ("meta", "facts"):
            rows.add_meta([RawRow(None, row) for row in connection.execute(f"SELECT name, value FROM {table}")])
        elif table in ("blocks", "arrays"):
            rows.add((RawRow(row[0], row[1:]) for row in connection.execute(f"SELECT rowid, * FROM {table}")), known=True)
        else:
            rows.add((RawRow(row[0], (None, *row[1:])) for row in connection.execute(f"SELECT * FROM {table}")), known=True)
    except (sqlite3.Error, UnicodeDecodeError):  # a name in the message of an error may be damaged
        return False
    return True


def is_legacy(pages: RawPages) -> bool:
    """Return whether a file has the format of release 0.1: by its header, or if that is damaged, by its rows."""
    if pages.header is not None:
        return pages.header.user_version < 2
    probe = IntactRows(legacy=False)
    for cells in pages.current_cells():
        probe.add(cells)
        if probe.blocks or probe.versions or probe.items.execute("SELECT 1 FROM items").fetchone():
            return False
    return True


def read_pages(pages: RawPages, rows: IntactRows) -> None:
    """Add the rows of all pages that are in use."""
    for cells in pages.current_cells():
        rows.add_meta(cells)
        rows.add(cells)


def find_old_rows(
    pages: RawPages, version: int, items: set[int], codes: UInt32s, *, legacy: bool
) -> Iterator[tuple[tuple[Any, ...], None] | tuple[None, CodeBlock]]:
    """Yield rows of some items, and blocks with codes of others, from pages that are free or were written again later.

    Rows of items are never changed, nor is the code of an item in a version, so that an old one is right.
    """
    for cells in pages.old_cells():
        for cell in cells:
            item = as_item(cell, legacy=legacy)
            if item is not None:
                if item[0] in items:
                    yield item, None
            elif (block := as_block(cell, legacy=legacy)) is not None and block[0][0] == version:
                wanted = np.isin(block[1].item_ids, codes)
                if wanted.any():
                    yield None, CodeBlock(0, block[1].item_ids[wanted], block[1].codes[wanted], 0)


def as_item(cell: RawRow, *, legacy: bool) -> tuple[Any, ...] | None:
    """Return a row of `items` without its checksum, if it is intact."""
    item_id, values = cell
    if item_id is None or len(values) not in ((6,) if legacy else (7, 8)):  # format 2 has no row of a file
        return None
    if not 0 <= item_id < 2**32 or not isinstance(values[1], str):
        return None
    if legacy:
        numbers = all(value is None or isinstance(value, int) for value in values[3:6])
        return (item_id, *values[1:6], None) if values[0] is None and numbers and _is_labels(values[2]) else None
    row: tuple[Any, ...] = (item_id, *values[1:6], *(values[7:] or (None,)))
    return row if item_checksum(*row) == values[6] else None


def _is_labels(text: Any) -> bool:
    if text is None:
        return True
    try:
        labels = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return isinstance(labels, list) and all(isinstance(label, str) for label in labels)


def as_block(cell: RawRow, *, legacy: bool) -> tuple[tuple[int, int], CodeBlock] | None:
    """Return version, number and content of a row of `blocks`, if it is intact."""
    values: tuple[Any, ...] = cell.values
    if len(values) != (10 if legacy else 11) or not all(isinstance(value, int) for value in values[:7]):
        return None
    version, number, generation, count, _, _, checksum = values[:7]
    clusters, item_ids, codes = values[7:10]
    if not all(isinstance(part, bytes) for part in (clusters, item_ids, codes)) or count < 1:
        return None
    if len(item_ids) != 4 * count or len(codes) % count or len(clusters) != 2 * count:
        return None
    if zlib.crc32(codes, zlib.crc32(item_ids, zlib.crc32(clusters))) != checksum:
        return None
    if not legacy and row_checksum(*values[:7]) != values[10]:
        return None
    found = np.frombuffer(item_ids, "<u4"), np.frombuffer(codes, np.uint8).reshape(count, -1)
    return (version, number), CodeBlock(generation, *found, 0 if legacy else values[10])


def as_array(values: tuple[Any, ...]) -> tuple[str, ArrayInfo] | None:
    """Return name and description of an array from a row of `arrays`, if it is intact."""
    info = parse_array(*values) if len(values) == 7 else None
    return None if info is None else (values[0], info)


def as_text(code: int, values: tuple[Any, ...]) -> str | None:
    """Return the text of a row of `texts`, if it is intact."""
    is_text = len(values) == 3 and isinstance(values[1], str) and row_checksum(code, values[1]) == values[2]
    return values[1] if is_text else None


def as_array_block(cell: RawRow) -> tuple[Any, ...] | None:
    """Return array, generation, description, item ids and rows of a row of `array_blocks`, if it is intact.

    Rows of vectors from format 3 lack the first two, which are last in the file.
    """
    number: int | None = cell.row_id
    values: tuple[Any, ...] = cell.values
    end = 1 + len(ArrayBlockInfo._fields)
    if number is None or len(values) not in (end + 3, end + 5) or not has_valid_types(values[1:end]):
        return None
    info, (checksum, item_ids, data), array = values[1:end], values[end : end + 3], values[end + 3 :] or (VECTORS, 0)
    if not isinstance(array[0], str) or not isinstance(array[1], int):
        return None
    if array_block_checksum(array[0], array[1], number, *info) != checksum:
        return None
    if parse_block(ArrayBlockInfo(*info), item_ids, data) is None:
        return None
    return (*array, *info, item_ids, data)


def _as_version(number: int, values: tuple[Any, ...], *, legacy: bool) -> VersionInfo | None:
    if legacy:
        fits = len(values) == 5 and isinstance(values[1], int) and isinstance(values[2], str | None)
        return VersionInfo(values[1], values[2], 0) if fits and isinstance(values[4], int) else None
    if len(values) != 11:
        return None
    fields = [values[column] for column in _VERSION_FIELDS]
    return VersionInfo(*fields) if row_checksum(number, *fields) == values[10] else None


def _as_source(number: int, values: tuple[Any, ...], *, legacy: bool) -> tuple[str, str, str | None] | None:
    if len(values) not in ((3,) if legacy else (4, 5)) or not all(isinstance(value, str) for value in values[1:3]):
        return None
    path, prefix, column = values[1], values[2], values[4] if len(values) == 5 else None  # format 2 has no column
    return (path, prefix, column) if legacy or source_checksum(number, path, prefix, column) == values[3] else None
