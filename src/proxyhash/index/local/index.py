"""The embedded index: a folder with a SQLite file and a copy of the model, its codes searched in memory."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import MAX_BITS, Neighbors
from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.base import Index
from proxyhash.index.calibration import THRESHOLD, Calibration
from proxyhash.index.clusters.segment import Found, distances_of, positions_of
from proxyhash.index.hits import Row, as_matches, packed_rows
from proxyhash.index.local import items, transactions
from proxyhash.index.local.items import Item, Labels
from proxyhash.index.local.snapshots import CodesInMemory, Snapshot
from proxyhash.index.local.store import Store
from proxyhash.index.model_store import keep_copy, load_hasher, model_folder, proxy_codes
from proxyhash.index.queries import Anything, Queries, as_items, as_queries
from proxyhash.index.reranking import asymmetric_distances, reranked
from proxyhash.index.results import Added, Info, Matches
from proxyhash.models.storage import fingerprint
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

FILE = "index.sqlite"
_TRIES = 3  # searches, if items that were found are removed before they can be looked up


class EmbeddedIndex(Index):
    """An index in a folder of this machine. Several processes may have it open; one writes at a time."""

    def __init__(self, folder: Path, store: Store, hasher: "Hasher | None" = None, remembered: int = 0) -> None:
        self.folder = folder
        self.store = store
        self.memory = CodesInMemory(store)
        self._items = items.RememberedItems(store, remembered)
        self._hasher = hasher
        self._hasher_of: str | None = self.model if hasher is not None else None

    @classmethod
    def open_folder(
        cls, folder: Path, *, model: "str | Path | Hasher | None" = None, bits: int | None = None, remembered: int = 0
    ) -> "EmbeddedIndex":
        """Open the index in a folder, or make one there for a model or for codes of some bits.

        So many items are `remembered` after they were found: for who searches the same index again and again.
        """
        if (folder / FILE).is_file() and (folder / FILE).stat().st_size:
            index = cls(folder, Store(folder / FILE), remembered=remembered)
            index._check(model, bits)
            return index
        if model is None and bits is None:
            raise InputError(f"There is no index at {folder}; to make one, say which model or how many bits it is for.")
        return cls._create(folder, model, bits)

    @classmethod
    def _create(cls, folder: Path, model: "str | Path | Hasher | None", bits: int | None) -> "EmbeddedIndex":
        hasher = None if model is None else load_hasher(model)
        bits = hasher.bits if hasher is not None else check_int("bits", bits, minimum=1)
        if bits > MAX_BITS:
            raise InputError(f"Codes have at most {MAX_BITS} bits, not {bits}.")
        if folder.is_dir() and any(child.name not in (FILE, "models") for child in folder.iterdir()):
            raise InputError(f"{folder} holds other things than an index; choose another folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot make {folder}: {error.strerror}.") from error
        name = None if hasher is None else keep_copy(hasher, folder)
        return cls(folder, Store.create(folder / FILE, bits, name), hasher)

    def _check(self, model: "str | Path | Hasher | None", bits: int | None) -> None:
        if bits is not None and bits != self.bits:
            raise InputError(f"{self.folder} is an index of {self.bits} bits, not {bits}.")
        if model is None:
            return
        hasher = load_hasher(model)
        folder = hasher.folder
        if folder is None or fingerprint(folder) != self.model:
            advice = "leave --model out, or run: proxyhash index upgrade"
            raise InputError(f"{self.folder} was made with another model, whose codes cannot be compared; {advice}.")
        keep_copy(hasher, self.folder)
        self._hasher, self._hasher_of = hasher, self.model

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return int(
            self.store.value("SELECT bits FROM editions WHERE number = (SELECT value FROM facts WHERE name = 'live')")
        )

    @property
    def model(self) -> str | None:
        """Return the fingerprint of the model, None if the codes came from elsewhere."""
        statement = "SELECT model FROM editions WHERE number = (SELECT value FROM facts WHERE name = 'live')"
        name: str | None = self.store.value(statement)
        return name

    @property
    def hasher(self) -> "Hasher":
        """Return the model, from the copy in the index."""
        name = self.model
        if name is None:
            raise InputError(f"{self.folder} holds codes from elsewhere and has no model, so search it with codes.")
        if self._hasher is None or self._hasher_of != name:
            self._hasher, self._hasher_of = load_hasher(model_folder(self.folder, name)), name
        return self._hasher

    @property
    def calibration(self) -> Calibration | None:
        """Return what distances are worth, if the model was calibrated."""
        name = self.model
        return None if name is None else Calibration.load(model_folder(self.folder, name), self.bits)

    def __len__(self) -> int:
        """Return how many items there are."""
        return int(self.store.value("SELECT count(*) FROM items"))

    def add(self, items: Anything, keys: Sequence[str] | None = None, labels: Labels | None = None) -> Added:
        """Add packed codes or images, in transactions of some thousands; see `Index.add`."""
        begun = time.monotonic()
        edition = self.store.fact("live")
        given, names = as_items(items, keys, self.bits, lambda: self.hasher)
        batch = transactions.Batch(edition, given, names, labels)
        replaced = self.add_batches(batch)
        return Added(len(batch) - replaced, replaced, seconds=time.monotonic() - begun)

    def add_batches(self, batch: transactions.Batch) -> int:
        """Add many codes, and return how many items they replaced."""
        items.check_keys(batch.keys, len(batch))
        items.check_labels(batch.labels, len(batch))
        transactions.regroup_if_grown(self.store, batch.codes, lambda: proxy_codes(self.folder, self.model))
        return transactions.add_in_parts(self.store, batch)

    def remove(self, keys: Sequence[str]) -> int:
        """Remove items; see `Index.remove`."""
        return transactions.remove_keys(self.store, [keys] if isinstance(keys, str) else list(keys))

    def neighbors(self, codes: Packed, k: int, *, threads: int | None = None) -> Neighbors:
        """Return distances and positions (Q, k) of the k nearest of packed codes: what `search` finds, without keys."""
        found, _ = self._nearest(self.memory.snapshot(), codes, k, threads)
        return Neighbors(distances_of(found.keys), positions_of(found.keys))

    def search(
        self,
        queries: Anything,
        k: int = 10,
        *,
        rerank: int = 0,
        approximate: int = 0,
        threshold: float = THRESHOLD,
        threads: int | None = None,
        radius: int | None = None,
        codes: bool = False,
    ) -> list[Matches]:
        """Return the k nearest items of each query; see `Index.search`.

        Of these, only those at most `radius` bits away are looked up, if it is given; `codes` asks for their codes too.
        """
        k, rerank = check_int("k", k, minimum=1), check_int("rerank", rerank, minimum=0)
        check_int("approximate", approximate, minimum=0)
        for last in reversed(range(_TRIES)):
            asked, snapshot = self._asked(queries)
            ranked = self._ranked(snapshot, asked, k, rerank, approximate, threads, codes=codes)
            rows = [row.within(radius) for row in ranked]
            known = self._known(rows, snapshot, complete=last > 0)
            if known is not None:
                return self._answer(asked, rows, known, threshold, exact=not approximate)
        raise AssertionError

    def within(self, queries: Anything, radius: int, *, threads: int | None = None) -> list[Matches]:
        """Return all items within a radius; see `Index.within`."""
        radius = min(check_int("radius", radius, minimum=0), self.bits)
        for last in reversed(range(_TRIES)):
            asked, snapshot = self._asked(queries)
            rows = [Row(keys) for keys in snapshot.within(_query_words(asked.codes), radius, threads)]
            known = self._known(rows, snapshot, complete=last > 0)
            if known is not None:
                return self._answer(asked, rows, known, THRESHOLD, exact=True)
        raise AssertionError

    def item(self, key: str) -> Item:
        """Return what is known of an item."""
        position = items.positions_of(self.store, [key]).get(key)
        if position is None:
            raise InputError(f"The index has no item {key}.")
        return items.items_at(self.store, [position])[position]

    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item."""
        from proxyhash.index.local.blocks import places, read_block

        with self.store.reading():
            position, edition = self.item(key).position, self.store.fact("live")
            number = next(n for n, place in places(self.store, edition).items() if place.low <= position <= place.high)
            block = read_block(self.store, edition, number)
        found: Packed = block.codes[block.positions == position]
        return found

    def info(self) -> Info:
        """Say what is in it."""
        with self.store.reading():
            _, centres = transactions.live_centres(self.store)
            sources = tuple(path for (path,) in self.store.rows("SELECT DISTINCT path FROM sources ORDER BY path"))
            return Info(
                str(self.folder),
                len(self),
                self.bits,
                self.model,
                "scan" if centres is None else f"{len(centres):,} groups",
                self.calibration is not None,
                sources,
                self.bytes_on_disk(),
            )

    def bytes_on_disk(self) -> int:
        """Return the size of the folder."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    def _nearest(self, snapshot: Snapshot, codes: Packed, k: int, threads: int | None) -> tuple[Found, Words]:
        q = _query_words(codes)
        if not len(snapshot):
            return Found(np.zeros((len(q), 0), np.uint64), np.zeros((len(q), 0), np.int64)), np.zeros(
                (len(q), 0, 1), np.uint64
            )
        found, stored, _ = snapshot.nearest(q, k, threads)
        return found, stored

    def _asked(self, queries: Anything) -> tuple[Queries, Snapshot]:
        """Return queries and the codes to search, both of one edition, should the index move to another model just now."""
        while True:
            edition = self.store.fact("live")
            asked, snapshot = as_queries(queries, self.bits, lambda: self.hasher), self.memory.snapshot()
            if snapshot.edition == edition:
                return asked, snapshot

    def _known(self, rows: list[Row], snapshot: Snapshot, *, complete: bool) -> Mapping[int, Item] | None:
        """Look up what was found; None if some of it was removed meanwhile and all of it must be `complete`."""
        wanted = {int(position) for row in rows for position in positions_of(row.keys)}
        known = self._items.at(wanted, snapshot.generation)
        return None if complete and not wanted <= known.keys() else known

    def _answer(
        self, asked: Queries, rows: list[Row], known: Mapping[int, Item], threshold: float, *, exact: bool
    ) -> list[Matches]:
        calibration = self.calibration
        pairs = zip(asked.names, rows, strict=True)
        return [as_matches(name, row, known, calibration, threshold, exact=exact) for name, row in pairs]

    def _ranked(
        self,
        snapshot: Snapshot,
        asked: Queries,
        k: int,
        rerank: int,
        approximate: int,
        threads: int | None,
        *,
        codes: bool,
    ) -> list[Row]:
        """Return for each query the keys of its best, and their asymmetric distances if they were re-ranked."""
        if approximate:
            from proxyhash.index.clusters.ivf import nearest_approximately

            return [Row(keys) for keys in nearest_approximately(self, snapshot, asked.codes, k, approximate)]
        found, stored = self._nearest(snapshot, asked.codes, max(k, rerank), threads)
        nothing = [None] * len(found.keys)
        scores: Iterable[NDArray[np.float32] | None] = nothing
        keys, best = found.keys[:, :k], stored[:, :k]
        if rerank and found.keys.size:
            keys, scores, best = self._reranked(asked, found, stored, k)
        return list(map(Row, keys, scores, packed_rows(best, asked.codes.shape[1]) if codes else nothing))

    def _reranked(self, asked: Queries, found: Found, stored: Words, k: int) -> tuple[Words, NDArray[np.float32], Words]:
        """Return keys, asymmetric distances and codes of the k best candidates by the latter."""
        if asked.nu is None:
            raise InputError("Re-ranking needs images or real-valued embeddings as queries, not codes.")
        score = asymmetric_distances(asked.nu, stored)
        order = reranked(score, found.keys)[:, :k]
        keys, scores = np.take_along_axis(found.keys, order, 1), np.take_along_axis(score, order, 1)
        return keys, scores, np.take_along_axis(stored, order[:, :, None], 1)


def _query_words(codes: Packed) -> Words:
    return np.ascontiguousarray(to_words(codes).T)
