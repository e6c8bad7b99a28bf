"""Files of one folder, and vectors of a file, in a collection of Milvus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.columns import Column
from proxyhash.index.folder_sync import StoredCounts
from proxyhash.index.local.items import FileStat, Labels
from proxyhash.index.milvus.index import MilvusIndex
from proxyhash.index.milvus.rows import format_file, source_digest
from proxyhash.index.queries import Features
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class MilvusFolderSync:
    """Reads and writes the items of a folder, which are marked by a digest of its path and prefix; see `FolderSync`."""

    index: MilvusIndex
    root: Path
    prefix: str

    @property
    def source(self) -> str:
        """Return the digest of this folder."""
        return source_digest(self.root, self.prefix)

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time."""
        return self.index.files_of_source(self.source)

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that exist."""
        return set(self.index.rows(keys, ["key"]))

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels,
        stats: Sequence[FileStat],
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        features: Features | None = None,  # noqa: ARG002
    ) -> StoredCounts:
        """Store a batch without the files that another process has stored. Milvus has no transactions, so that two processes
        may both count a file that they store at the same moment; it is one item nevertheless.
        """
        source = self.source
        paths = (self.root / key.removeprefix(self.prefix) for key in keys)
        files = [format_file(source, path, stat) for path, stat in zip(paths, stats, strict=True)]
        stored = {key: row["file"] for key, row in self.index.rows(keys, ["key", "file"]).items()}
        new = [row for row, (key, file) in enumerate(zip(keys, files, strict=True)) if stored.get(key) != file]
        if new:
            names, chosen = [keys[row] for row in new], {name: one.select(np.array(new)) for name, one in columns.items()}
            new_labels, new_files = [labels[row] for row in new], [files[row] for row in new]
            self.index.store(codes[new], names, new_labels, new_files, columns=chosen)
        replaced = sum(keys[row] in stored for row in new)
        return StoredCounts(len(new) - replaced, replaced, len(keys) - len(new))

    def remove(self, keys: Sequence[str]) -> int:
        """Remove those of the keys that are still there and came from this folder."""
        stored = self.index.rows(keys, ["key", "file"])
        own = [key for key, row in stored.items() if row["file"].startswith(f"{self.source} ")]
        return self.index.remove(own) if own else 0


@dataclass(frozen=True)
class MilvusVectorSync:
    """Writes vectors of a file as codes; which file they came from is not stored, so that each is written again."""

    index: MilvusIndex

    def known_files(self) -> dict[str, FileStat]:
        """Raise, as it is not known what came from a file."""
        raise InputError(f"{self.index.location} is on Milvus, which does not know files of vectors; leave --prune out.")

    def changed_rows(self, keys: Sequence[str], stats: Sequence[FileStat]) -> NDArray[np.bool_]:  # noqa: ARG002
        """Return that all rows are to be written."""
        return np.ones(len(keys), bool)

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels,
        stats: Sequence[FileStat],  # noqa: ARG002
        vectors: NDArray[Any] | None = None,  # noqa: ARG002
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        features: Features | None = None,  # noqa: ARG002
    ) -> StoredCounts:
        """Write a batch over items with the same keys."""
        replaced = self.index.store(codes, keys, labels, columns=columns)
        return StoredCounts(len(codes) - replaced, replaced)

    def remove(self, keys: Sequence[str]) -> int:
        """Remove items."""
        return self.index.remove(keys) if keys else 0
