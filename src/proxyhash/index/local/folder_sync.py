"""Files of one folder in a local index."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.codes.bits import Packed
from proxyhash.index.folder_sync import StoredCounts, foreign_key_message
from proxyhash.index.local import items, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import FileStat, Labels
from proxyhash.utils.errors import InputError


@dataclass
class LocalFolderSync:
    """Reads and writes the items of a folder; see `FolderSync`."""

    index: LocalIndex
    root: Path
    prefix: str
    version: int = 0
    source: int = 0

    def __post_init__(self) -> None:
        """Store the version: batches are refused once the index has moved to another model."""
        self.version = self.index.store.active_version

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time."""
        return items.files_of_source(self.index.store, self.root, self.prefix)

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that exist."""
        return set(items.ids_by_key(self.index.store, keys))

    def begin(self) -> None:
        """Store the folder, which gives it a number."""
        with self.index.store.writing():
            self.source = items.add_source(self.index.store, self.root, self.prefix)

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, stats: Sequence[FileStat]) -> StoredCounts:
        """Store a batch in one transaction, which looks first at what another process has stored since the plan was made."""
        store = self.index.store
        transactions.recluster_if_grown(store, codes, self.index.proxy_codes)
        with store.writing():
            stored = items.files_by_key(store, keys)
            foreign = [key for key, (source, _) in stored.items() if source != self.source]
            if foreign:
                raise InputError(foreign_key_message(min(foreign)))
            new = [
                row
                for row, (key, stat) in enumerate(zip(keys, stats, strict=True))
                if stored.get(key) != (self.source, stat)
            ]
            if not new:
                return StoredCounts(unchanged=len(keys))
            batch = transactions.ItemBatch(
                self.version,
                codes[new],
                [keys[row] for row in new],
                [labels[row] for row in new],
                self.source,
                [stats[row] for row in new],
            )
            replaced = transactions.add_batch(store, batch)
        return StoredCounts(len(new) - replaced, replaced, len(keys) - len(new))

    def remove(self, keys: Sequence[str]) -> int:
        """Remove those of the keys that are still there and came from this folder, in one transaction."""
        with self.index.store.writing():
            stored = items.files_by_key(self.index.store, keys)
            own = [key for key, (source, _) in stored.items() if source == self.source]
            return transactions.remove_keys(self.index.store, own) if own else 0
