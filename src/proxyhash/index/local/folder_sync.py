"""Files of one folder, or vectors of one file, in a local index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.columns import Column
from proxyhash.index.folder_sync import StoredCounts, foreign_key_message
from proxyhash.index.local import item_arrays, items, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import FileStat, Labels, Source
from proxyhash.index.local.schema import VECTORS
from proxyhash.index.local.transactions import ItemBatch
from proxyhash.index.queries import Features, take_features
from proxyhash.index.refinement.storage import fit_if_due
from proxyhash.utils.errors import InputError


@dataclass
class LocalFolderSync:
    """Reads and writes the items of a folder or of a file of vectors; see `FolderSync` and `VectorSync`."""

    index: LocalIndex
    source: Source
    keep_vectors: bool = False
    codes_id: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Store which codes are searched: batches are refused once the index was replaced or moved to another model."""
        self.codes_id = self.index.store.codes_id

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time."""
        return items.files_of_source(self.index.store, self.source)

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that exist."""
        return set(items.ids_by_key(self.index.store, keys))

    def changed_rows(self, keys: Sequence[str], stats: Sequence[FileStat]) -> NDArray[np.bool_]:
        """Return which of the items are new or changed; a key from elsewhere is an error."""
        stored = self._stored(keys)
        _check_own(stored)
        return np.array([stored.get(key) != (True, stat) for key, stat in zip(keys, stats, strict=True)], bool)

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels,
        stats: Sequence[FileStat],
        vectors: NDArray[Any] | None = None,
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        features: Features | None = None,
    ) -> StoredCounts:
        """Store a batch in one transaction, which looks first at what another process has stored since the plan was made."""
        store = self.index.store
        transactions.recluster_if_grown(store, codes, self.index.proxy_codes)
        with store.writing():
            new = np.flatnonzero(self.changed_rows(keys, stats)).tolist()
            if not new:
                return StoredCounts(unchanged=len(keys))
            batch = ItemBatch(
                self.codes_id,
                codes[new],
                [keys[row] for row in new],
                [labels[row] for row in new],
                self.source,
                [stats[row] for row in new],
                {} if vectors is None else {VECTORS: vectors if len(new) == len(keys) else vectors[new]},
                {name: column.select(np.array(new)) for name, column in columns.items()},
                None if features is None else take_features(features, new),
            )
            replaced = transactions.add_batch(store, batch)
        if features is not None:
            fit_if_due(store, self.codes_id[1], is_end=False)
        return StoredCounts(len(new) - replaced, replaced, len(keys) - len(new))

    def remove(self, keys: Sequence[str]) -> int:
        """Remove those of the keys that are still there and came from this folder, in one transaction."""
        with self.index.store.writing():
            own = [key for key, (is_own, _) in self._stored(keys).items() if is_own]
            return transactions.remove_keys(self.index.store, own) if own else 0

    def _stored(self, keys: Sequence[str]) -> dict[str, tuple[bool, FileStat]]:
        """Return for those of the keys that exist whether they came from this folder, and their files' size and time.

        An item whose vector is to be kept, and is not, has no size: it is stored again.
        """
        store = self.index.store
        number = items.find_source(store, self.source)
        rows = items.rows_by_key(store, keys)
        found = {row.key: (row.source is not None and row.source == number, row.file_stat) for row in rows}
        if self.keep_vectors and rows:
            is_kept = np.isin([row.item_id for row in rows], item_arrays.row_ids(store, VECTORS))
            lacking = [row.key for row, kept in zip(rows, is_kept, strict=True) if not kept]
            found |= {key: (found[key][0], FileStat(-1, -1)) for key in lacking}
        return found


def _check_own(stored: dict[str, tuple[bool, FileStat]]) -> None:
    """Raise an InputError if one of the items came from elsewhere."""
    foreign = [key for key, (is_own, _) in stored.items() if not is_own]
    if foreign:
        raise InputError(foreign_key_message(min(foreign)))
