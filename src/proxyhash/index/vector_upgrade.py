"""Upgrade of an index of vectors: they are kept in the index, or read again from their files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.vectors import VectorFile, read_vectors
from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import blocks, item_arrays, items
from proxyhash.index.local.array_blocks import ArrayBlock
from proxyhash.index.local.items import FileStat, Item, ItemRow
from proxyhash.index.local.schema import VECTORS
from proxyhash.index.upgrade import EncodedItems, Upgrade
from proxyhash.index.vector_sync import file_stat
from proxyhash.models.vector_hasher import VectorHasher
from proxyhash.utils.errors import InputError

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _OpenFile:
    """A file of vectors as it is now."""

    content: VectorFile
    stat: FileStat


@dataclass
class VectorUpgrade(Upgrade):
    """Encodes kept vectors, and those that are read from their files; see `Upgrade`.

    A file whose size or time changed is used if its rows still have the codes that the old model gave them.
    """

    files: dict[int, _OpenFile | None] = field(default_factory=dict)  # by the number of their source; None: unreadable

    originals: ClassVar[str] = "vectors"

    def _check_originals(self) -> None:
        store, hasher = self.index.store, self._hasher
        with store.reading():
            kept = item_arrays.row_ids(store, VECTORS)
            infos = item_arrays.list_array_blocks(store, VECTORS).values()
            widths = {self.index.width, *(info.width for info in infos)}
            other = next(iter(widths - {hasher.width, None}), None)
            if other is not None:
                raise InputError(
                    f"The new model takes vectors of {hasher.width} values, and the index has vectors of {other}."
                )
            rows = store.rows("SELECT item_id, source FROM items WHERE file_row IS NULL OR source IS NULL ORDER BY item_id")
            lacking = np.setdiff1d(np.array([row[0] for row in rows], np.uint32), kept)
            if len(lacking):
                key = items.items_by_id(store, lacking[:1])[int(lacking[0])].key
                raise InputError(
                    f"There is no vector of {key} to encode again: it was added neither from a file nor with --keep-vectors."
                )
            from_files = np.setdiff1d(items.all_ids(store), kept)
            sources = self._sources_of(from_files)
        for number in sorted(sources):
            if self._open(number) is None and not self.drop_unreadable:
                path = items.list_sources(store)[number][0]
                raise InputError(f"The vectors of {path} cannot be read any more, and were not kept; nothing was changed.")

    @property
    def _hasher(self) -> VectorHasher:
        return cast(VectorHasher, self.encoder)

    def _sources_of(self, item_ids: UInt32s) -> set[int]:
        """Return the numbers of the files that some items came from."""
        if not len(item_ids):
            return set()
        statement = "SELECT item_id, source FROM items WHERE source IS NOT NULL"
        wanted = np.zeros(int(item_ids[-1]) + 1, bool)
        wanted[item_ids] = True
        pairs = self.index.store.each(statement)
        return {source for item_id, source in pairs if item_id < len(wanted) and wanted[item_id]}

    def _open(self, number: int) -> _OpenFile | None:
        """Return a file of vectors by the number of its source, opened once; None if it cannot be read."""
        if number not in self.files:
            path, _, column = items.list_sources(self.index.store)[number]
            try:
                content = read_vectors(path, vector_column=column)
                usable = content.values.shape[1] == self._hasher.width
                self.files[number] = _OpenFile(content, file_stat(Path(path))) if usable else None
            except (InputError, OSError):
                self.files[number] = None
        return self.files[number]

    def encode_items(self, found: Sequence[Item]) -> EncodedItems:
        """Return which items could be encoded, their codes, and their vectors as features."""
        item_ids = np.array([item.item_id for item in found], np.uint32)
        vectors = np.zeros((len(found), self._hasher.width), np.float32)
        known = np.zeros(len(found), bool)
        for block in item_arrays.find_rows(self.index.store, VECTORS, item_ids):
            places = np.searchsorted(item_ids, block.item_ids)
            vectors[places], known[places] = block.rows, True
        for block in self._read_files(item_ids[~known]):
            places = np.searchsorted(item_ids, block.item_ids)
            vectors[places], known[places] = block.rows, True
        kept = np.flatnonzero(known)
        if not len(kept):
            return EncodedItems(kept, np.zeros((0, (self.encoder.bits + 7) // 8), np.uint8), None)
        rows = self._hasher.rows(vectors[kept])
        return EncodedItems(kept, self._hasher.encode(rows), rows if self.refines else None)

    def _read_files(self, item_ids: UInt32s) -> Iterator[ArrayBlock]:
        """Yield the vectors of items from their files, as far as these can be read and did not change."""
        rows = items.rows_by_id(self.index.store, item_ids)
        for number in sorted({row.source for row in rows if row.source is not None}):
            file = self._open(number)
            if file is not None:
                yield self._read_file(file, [row for row in rows if row.source == number])

    def _read_file(self, file: _OpenFile, rows: Sequence[ItemRow]) -> ArrayBlock:
        """Return the vectors of those items whose rows are in the file and did not change."""
        count = len(file.content)
        inside = [row for row in rows if type(row.file_row) is int and 0 <= row.file_row < count]
        item_ids = np.array([row.item_id for row in inside], np.uint32)
        file_rows = np.array([row.file_row for row in inside], np.int64)
        values = np.asarray(file.content.values[file_rows], np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        good = np.isfinite(lengths) & np.logical_or(lengths > 0, not self._hasher.normalizes)
        is_same = [row.file_stat == file.stat._replace(row=row.file_row) for row in inside]
        changed = good & ~np.array(is_same, bool)
        if changed.any():
            good[changed] = self._have_old_codes(values[changed], item_ids[changed])
        return ArrayBlock(item_ids[good], values[good])

    def _have_old_codes(self, values: Floats, item_ids: UInt32s) -> NDArray[np.bool_]:
        """Return which vectors have the codes of the active version; one bit in a hundred may differ, by rounding."""
        old = cast(VectorHasher, self.index.hasher)
        same: NDArray[np.bool_] = np.logical_or(values.any(1), not old.normalizes)
        with self.index.store.reading():
            stored = blocks.codes_of(self.index.store, self.index.store.active_version, item_ids)
        distances = np.unpackbits(old.encode(values[same]) ^ stored[same], axis=1).sum(1) if same.any() else 0
        same[same] = distances <= 1 + self.index.bits // 100
        return same
