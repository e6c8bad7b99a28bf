"""`MilvusIndex`: the `Index` interface on a collection of Milvus, with binary vectors and Hamming distance."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.codes import MAX_BITS
from proxyhash.codes.bits import Packed
from proxyhash.index.base import Index
from proxyhash.index.calibration import THRESHOLD, Calibration
from proxyhash.index.local import items as checks
from proxyhash.index.local.items import FileFacts, Item, Labels
from proxyhash.index.milvus import collection
from proxyhash.index.milvus.collection import CALL, Facts
from proxyhash.index.milvus.location import Location, parse_location
from proxyhash.index.milvus.retry import patiently
from proxyhash.index.milvus.rows import Positions, facts_from, given_key, item_of, rows_of, stored_key
from proxyhash.index.milvus.search import Searcher, as_answer, with_scores
from proxyhash.index.model_store import keep_copy, load_hasher, model_folder
from proxyhash.index.queries import Anything, as_items, as_queries
from proxyhash.index.results import Added, Info, Matches
from proxyhash.utils.errors import InputError
from proxyhash.utils.paths import cache_root
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

_KEYS_AT_ONCE = 4096  # in one question to the server


class MilvusIndex(Index):
    """An index in a collection of Milvus. Any number of processes and machines may write and search at once.

    The server holds codes, keys and labels, and says which model they are of. The model itself lies on each machine that
    encodes, in the cache folder, under its fingerprint: it is given once.
    """

    def __init__(self, place: Location, client: Any, facts: Facts, hasher: "Hasher | None" = None) -> None:
        self.place, self.client, self.facts = place, client, facts
        self._hasher = hasher
        self._positions = Positions()
        self._searcher = Searcher(client, place)

    @classmethod
    def open_address(
        cls, address: str, *, model: "str | Path | Hasher | None" = None, bits: int | None = None
    ) -> "MilvusIndex":
        """Open the index at an address, or make one there for a model or for codes of some bits."""
        place = parse_location(address)
        hasher = None if model is None else load_hasher(model)
        name = None if hasher is None else keep_copy(hasher, cache_root())
        client = collection.connect(place)
        try:
            facts = collection.read_facts(client, place)
            if facts is None:
                facts = _new_facts(place, hasher, name, bits)
                collection.create(client, place, facts)
            _check(place, facts, hasher, name, bits)
            collection.load(client, place)
        except BaseException:
            client.close()
            raise
        return cls(place, client, facts, hasher)

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.facts.bits

    @property
    def model(self) -> str | None:
        """Return the fingerprint of the model, None if the codes came from elsewhere."""
        return self.facts.model

    @property
    def hasher(self) -> "Hasher":
        """Return the model, from the copy on this machine."""
        if self.model is None:
            raise InputError(f"{self.place} holds codes from elsewhere and has no model, so search it with codes.")
        if self._hasher is None:
            folder = model_folder(cache_root(), self.model)
            if not folder.is_dir():
                raise InputError(
                    f"{self.place} has codes of model {self.model}, which is not on this machine; give --model."
                )
            self._hasher = load_hasher(folder)
        return self._hasher

    @property
    def calibration(self) -> Calibration | None:
        """Return what distances are worth, if the model is on this machine and was calibrated."""
        return None if self.model is None else Calibration.load(model_folder(cache_root(), self.model), self.bits)

    def __len__(self) -> int:
        """Return how many items there are."""
        return int(self._query(filter="", output_fields=["count(*)"])[0]["count(*)"])

    def add(self, items: Anything, keys: Sequence[str] | None = None, labels: Labels | None = None) -> Added:
        """Add packed codes or images in batches, each in Milvus's log when it is answered; see `Index.add`.

        An error in between leaves whole batches; adding the same again completes them, for a key names one item. What was
        replaced is the difference in size, so it is an estimate while others write.
        """
        begun = time.monotonic()
        codes, names = as_items(items, keys, self.bits, lambda: self.hasher)
        checks.check_keys(names, len(codes))
        checks.check_labels(labels, len(codes))
        replaced = self.store(codes, names, labels)
        return Added(len(codes) - replaced, replaced, seconds=time.monotonic() - begun)

    def store(self, codes: Packed, keys: Sequence[str], labels: Labels | None, files: Sequence[str] | None = None) -> int:
        """Write items, and return how many they replaced."""
        before = len(self)
        rows = rows_of(codes, keys, labels, self._positions.take(len(codes)), files)
        for batch in rows.batches():
            collection.upsert(self.client, self.place, rows.columns(batch))
        return min(max(before + len(codes) - len(self), 0), len(codes))

    def remove(self, keys: Sequence[str]) -> int:
        """Remove items, or none if one is unknown; see `Index.remove`. Milvus deletes batch by batch."""
        wanted = list(dict.fromkeys([keys] if isinstance(keys, str) else keys))
        checks.check_found(wanted, self.rows(wanted, ["key"]))
        for part in _parts(wanted):
            self._ask("delete", ids=[stored_key(key) for key in part])
        return len(wanted)

    def search(
        self,
        queries: Anything,
        k: int = 10,
        *,
        rerank: int = 0,
        approximate: int = 0,
        threshold: float = THRESHOLD,
        threads: int | None = None,  # noqa: ARG002  the server has its own
    ) -> list[Matches]:
        """Return the k nearest items of each query; see `Index.search`. Of items tied at the k-th place, Milvus chooses."""
        k, rerank = check_int("k", k, minimum=1), check_int("rerank", rerank, minimum=0)
        if check_int("approximate", approximate, minimum=0):
            raise InputError("An index on Milvus is searched exactly; leave approximate out.")
        asked = as_queries(queries, self.bits, lambda: self.hasher)
        if rerank and asked.nu is None:
            raise InputError("Re-ranking needs images or real-valued embeddings as queries, not codes.")
        rows = self._searcher.nearest(asked.codes, max(k, rerank))
        if rerank and asked.nu is not None:
            stored = self.rows({match.key for row in rows for match in row}, ["key", "code"])
            codes = {key: _code(row) for key, row in stored.items()}
            rows = [with_scores(row, nu, codes)[:k] for row, nu in zip(rows, asked.nu, strict=True)]
        return as_answer(asked.names, rows, self.calibration, threshold)

    def within(self, queries: Anything, radius: int, *, threads: int | None = None) -> list[Matches]:  # noqa: ARG002
        """Return all items within a radius; see `Index.within`."""
        radius = min(check_int("radius", radius, minimum=0), self.bits)
        asked = as_queries(queries, self.bits, lambda: self.hasher)
        return as_answer(asked.names, self._searcher.within(asked.codes, radius), self.calibration, THRESHOLD)

    def item(self, key: str) -> Item:
        """Return what is known of an item."""
        return item_of(self._row(key, ["key", "position", "labels", "file"]))

    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item."""
        return _code(self._row(key, ["key", "code"]))[None]

    def rows(self, keys: Iterable[str], fields: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return some fields of those items that are there, by key."""
        found: dict[str, dict[str, Any]] = {}
        for part in _parts(list(keys)):
            rows = self._ask("get", ids=[stored_key(key) for key in part], output_fields=list(fields), **self._fresh)
            found.update((given_key(row["key"]), row) for row in rows)
        return found

    def files_of(self, source: str) -> dict[str, FileFacts]:
        """Return the keys that came from a folder, and their files' facts as they were then."""
        name, condition = self.place.collection, f'file like "{source}%"'
        pages = self.client.query_iterator(
            name, batch_size=_KEYS_AT_ONCE, filter=condition, output_fields=["key", "file"], **self._fresh
        )
        found: dict[str, FileFacts] = {}
        while page := patiently(pages.next, self.place):
            found.update((given_key(row["key"]), facts_from(row["file"])) for row in page)
        pages.close()
        return found

    def info(self) -> Info:
        """Say what is in it."""
        plan = f"Milvus (BIN_FLAT, {self.place.consistency} consistency)"
        return Info(str(self.place), len(self), self.bits, self.model, plan, self.calibration is not None, None, None)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    @property
    def _fresh(self) -> dict[str, str]:
        return {"consistency_level": self.place.consistency}

    def _query(self, **question: Any) -> Any:
        return self._ask("query", **question, **self._fresh)

    def _ask(self, call: str, **question: Any) -> Any:
        """Call a method of the client for our collection, patiently."""
        method = getattr(self.client, call)
        return patiently(lambda: method(self.place.collection, timeout=CALL, **question), self.place)

    def _row(self, key: str, fields: Sequence[str]) -> dict[str, Any]:
        found = self.rows([key], fields)
        if not found:
            raise InputError(f"The index has no item {key}.")
        return found[key]


def _new_facts(place: Location, hasher: "Hasher | None", name: str | None, bits: int | None) -> Facts:
    if hasher is None and bits is None:
        raise InputError(f"There is no index at {place}; to make one, say which model or how many bits it is for.")
    bits = hasher.bits if hasher is not None else check_int("bits", bits, minimum=1)
    if bits > MAX_BITS:
        raise InputError(f"Codes have at most {MAX_BITS} bits, not {bits}.")
    return Facts(bits, name)


def _check(place: Location, facts: Facts, hasher: "Hasher | None", name: str | None, bits: int | None) -> None:
    if bits is not None and bits != facts.bits:
        raise InputError(f"{place} is an index of {facts.bits} bits, not {bits}.")
    if hasher is not None and name != facts.model:
        raise InputError(f"{place} was made with another model, whose codes cannot be compared; leave --model out.")


def _code(row: dict[str, Any]) -> Packed:
    """Return the packed code (bytes,) of a row."""
    return np.frombuffer(row["code"][0], np.uint8)


def _parts(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[first : first + _KEYS_AT_ONCE] for first in range(0, len(keys), _KEYS_AT_ONCE))
