"""Files of one folder in a collection of Milvus."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.codes.bits import Packed
from proxyhash.index.local.items import FileStat, Labels
from proxyhash.index.milvus.index import MilvusIndex
from proxyhash.index.milvus.rows import format_file
from proxyhash.index.results import BatchResult


@dataclass(frozen=True)
class MilvusFolderSync:
    """Reads and writes the items of a folder, which are marked by a digest of its path and prefix; see `FolderSync`."""

    index: MilvusIndex
    root: Path
    prefix: str

    @property
    def source(self) -> str:
        """Return the digest of this folder."""
        return hashlib.blake2b(f"{self.root}\0{self.prefix}".encode(errors="surrogateescape"), digest_size=16).hexdigest()

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time."""
        return self.index.files_of_source(self.source)

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that exist."""
        return set(self.index.rows(keys, ["key"]))

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, stats: Sequence[FileStat]) -> BatchResult:
        """Store a batch, and return how many items it replaced."""
        source = self.source
        paths = (self.root / key.removeprefix(self.prefix) for key in keys)
        files = [format_file(source, path, stat) for path, stat in zip(paths, stats, strict=True)]
        return BatchResult(self.index.store(codes, keys, labels, files))
