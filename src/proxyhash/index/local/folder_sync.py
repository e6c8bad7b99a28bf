"""Files of one folder in a local index."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.codes.bits import Packed
from proxyhash.index.local import items, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import FileStat, Labels, Source
from proxyhash.index.local.transactions import ItemBatch
from proxyhash.index.results import BatchResult


@dataclass
class LocalFolderSync:
    """Reads and writes the items of a folder; see `FolderSync`."""

    index: LocalIndex
    root: Path
    prefix: str
    version: int = 0

    def __post_init__(self) -> None:
        """Store the version: batches are refused once the index has moved to another model."""
        self.version = self.index.store.active_version

    @property
    def source(self) -> Source:
        """Return the folder as the index stores it."""
        return Source(self.root, self.prefix)

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time."""
        return items.files_of_source(self.index.store, self.source)

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that exist."""
        return set(items.ids_by_key(self.index.store, keys))

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, stats: Sequence[FileStat]) -> BatchResult:
        """Store a batch in one transaction, and return how many items it replaced."""
        store = self.index.store
        transactions.recluster_if_grown(store, codes, self.index.proxy_codes)
        return transactions.add_batch(store, ItemBatch(self.version, codes, keys, labels, self.source, stats))
