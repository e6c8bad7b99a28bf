"""A folder of images into an index: only what is new or changed is encoded, and what is done is kept."""

import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.index.base import Index
from proxyhash.index.local import items, transactions
from proxyhash.index.local.index import EmbeddedIndex
from proxyhash.index.local.items import FileFacts, Labels
from proxyhash.index.model_store import proxy_codes
from proxyhash.index.results import Added
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.data import FileImages, Problems
    from proxyhash.models.hasher import EmbedBatches

COMMIT_IMAGES = 4096  # in a transaction, or
COMMIT_SECONDS = 10.0  # as many as are encoded in this time: what a kill loses at most

Counted = Callable[[int, int], None]
"""Is told how many images of how many are done."""


@dataclass(frozen=True)
class Listing:
    """What is to be done: files to encode (indices into the images), files that are as they were, keys that are gone."""

    keys: Sequence[str]
    facts: Sequence[FileFacts | None]
    wanted: NDArray[np.int64]
    unchanged: int
    gone: Sequence[str]


class Filing(Protocol):
    """What an index knows of the files of one folder, and how it takes more of them."""

    def known(self) -> dict[str, FileFacts]:
        """Return the keys that came from this folder, and their files' facts as they were then."""
        ...

    def taken(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are in the index, from wherever."""
        ...

    def begin(self) -> None:
        """Get ready to store."""
        ...

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, facts: Sequence[FileFacts]) -> int:
        """Store a batch, durably, and return how many items it replaced."""
        ...


def add_folder(
    index: Index,
    folder: Path,
    problems: "Problems",
    *,
    prefix: str = "",
    prune: bool = False,
    counted: Counted = lambda *_: None,
    embed_batches: "EmbedBatches | None" = None,
) -> Added:
    """Encode the images of a folder that are new or changed, and store them under `prefix` and their path in the folder.

    With `prune`, items of this folder whose files are gone are removed. Images that cannot be read are counted in
    `problems`; if such a file was in the index, its old code stays. `embed_batches` replaces that of the hasher; it must
    give embeddings with the same signs.
    """
    from proxyhash.data import FileImages, load_dataset

    begun = time.monotonic()
    dataset = load_dataset(folder, strict=problems.strict)
    if not isinstance(dataset.images, FileImages):
        raise InputError(f"{folder} is not a folder of image files.")
    filing = _filing(index, dataset.images.root, prefix)
    known = filing.known()
    listing = list_changes(known, dataset.images, prefix, problems)
    _refuse_foreign(filing, [listing.keys[number] for number in listing.wanted], known)
    if len(listing.wanted):
        filing.begin()
    added = replaced = 0
    for numbers, codes in _encoded(index, dataset.images, listing.wanted, problems, counted, embed_batches):
        facts = [listing.facts[number] or FileFacts(-1, -1) for number in numbers]
        labels = [dataset.labels_of(int(number)) for number in numbers]
        replaced += filing.store(codes, [listing.keys[number] for number in numbers], labels, facts)
        added += len(numbers)
    removed = index.remove(listing.gone) if prune and listing.gone else 0
    seconds = time.monotonic() - begun
    return Added(added - replaced, replaced, listing.unchanged, removed, len(listing.wanted) - added, seconds)


def _filing(index: Index, root: Path, prefix: str) -> Filing:
    if isinstance(index, EmbeddedIndex):
        return EmbeddedFiling(index, root, prefix)
    from proxyhash.index.milvus.folder_sync import MilvusFiling
    from proxyhash.index.milvus.index import MilvusIndex

    assert isinstance(index, MilvusIndex)
    return MilvusFiling(index, root, prefix)


@dataclass
class EmbeddedFiling:
    """A folder's files in an embedded index."""

    index: EmbeddedIndex
    root: Path
    prefix: str
    edition: int = 0
    source: int = 0

    def __post_init__(self) -> None:
        """Remember which model this is for: batches are refused once the index has moved to another."""
        self.edition = self.index.store.fact("live")

    def known(self) -> dict[str, FileFacts]:
        """Return the keys that came from this folder."""
        return items.files_of(self.index.store, self.root, self.prefix)

    def taken(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are there."""
        return set(items.positions_of(self.index.store, keys))

    def begin(self) -> None:
        """Give the folder a number."""
        with self.index.store.writing():
            self.source = items.source_number(self.index.store, self.root, self.prefix)

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels, facts: Sequence[FileFacts]) -> int:
        """Store a batch in one transaction."""
        index = self.index
        transactions.regroup_if_grown(index.store, codes, lambda: proxy_codes(index.folder, index.model))
        return transactions.add_batch(index.store, transactions.Batch(self.edition, codes, keys, labels, self.source, facts))


def list_changes(known: dict[str, FileFacts], images: "FileImages", prefix: str, problems: "Problems") -> Listing:
    """Compare the files of a folder with what the index knows of them."""
    keys = [prefix + name for name in images.names]
    facts = [_facts(images.path(number)) for number in range(len(images))]
    changed = [number for number, (key, fact) in enumerate(zip(keys, facts, strict=True)) if known.get(key) != fact]
    wanted = [number for number in changed if _is_text(keys[number], problems)]
    gone = sorted(set(known) - set(keys))
    return Listing(keys, facts, np.array(wanted, np.int64), len(keys) - len(changed), gone)


def _is_text(key: str, problems: "Problems") -> bool:
    """Return whether a name can be stored: on some systems, files may have names that are no text."""
    try:
        key.encode()
    except UnicodeEncodeError:
        problems.add("file name that is not UTF-8", ascii(key))
        return False
    return True


def _facts(path: Path) -> FileFacts | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return FileFacts(facts.st_size, facts.st_mtime_ns)


def _refuse_foreign(filing: Filing, keys: Sequence[str], own: Container[str]) -> None:
    """Refuse to replace items of another folder that happen to have the same keys."""
    taken = sorted(filing.taken([key for key in keys if key not in own]))
    if taken:
        raise InputError(f"{taken[0]} is in the index already, from elsewhere; give these keys a beginning with --prefix.")


def _encoded(
    index: Index,
    images: "FileImages",
    wanted: NDArray[np.int64],
    problems: "Problems",
    counted: Counted,
    embed_batches: "EmbedBatches | None",
) -> Iterator[tuple[NDArray[np.int64], Packed]]:
    """Yield which images were encoded and their codes, enough at a time to be worth a transaction."""
    if not len(wanted):
        return
    numbers: list[NDArray[np.int64]] = []
    codes: list[Packed] = []
    since, total = time.monotonic(), len(wanted)
    counted(0, total)
    embed = embed_batches or index.hasher.embed_batches
    progress = lambda _, fraction: counted(round(fraction * total), total)  # noqa: E731
    for some, nu in embed(images, problems, indices=wanted, progress=progress):
        numbers.append(some)
        codes.append(pack(binarize(nu)) if len(some) else np.zeros((0, (index.bits + 7) // 8), np.uint8))
        if sum(map(len, numbers)) >= COMMIT_IMAGES or time.monotonic() - since > COMMIT_SECONDS:
            yield np.concatenate(numbers), np.concatenate(codes)
            numbers, codes, since = [], [], time.monotonic()
    if any(map(len, numbers)):
        yield np.concatenate(numbers), np.concatenate(codes)
