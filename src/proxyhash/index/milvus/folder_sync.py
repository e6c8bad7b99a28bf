"""A folder's files in a collection of Milvus."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.codes.bits import Packed
from proxyhash.index.local.items import FileFacts, Labels
from proxyhash.index.milvus.index import MilvusIndex
from proxyhash.index.milvus.rows import file_text


@dataclass(frozen=True)
class MilvusFiling:
    """Which items came from a folder is a field of each: digits of the folder's path and the keys' prefix."""

    index: MilvusIndex
    root: Path
    prefix: str

    @property
    def source(self) -> str:
        """Return the digits of this folder."""
        return hashlib.blake2b(f"{self.root}\0{self.prefix}".encode(errors="surrogateescape"), digest_size=16).hexdigest()

    def known(self) -> dict[str, FileFacts]:
        """Return the keys that came from this folder."""
        return self.index.files_of(self.source)

    def taken(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are there."""
        return set(self.index.rows(keys, ["key"]))

    def begin(self) -> None:
        """Do nothing: a folder is known by its items."""

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, facts: Sequence[FileFacts]) -> int:
        """Store a batch."""
        source = self.source
        paths = (self.root / key.removeprefix(self.prefix) for key in keys)
        files = [file_text(source, path, fact) for path, fact in zip(paths, facts, strict=True)]
        return self.index.store(codes, keys, labels, files)
