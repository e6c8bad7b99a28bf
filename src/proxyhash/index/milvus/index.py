"""`MilvusIndex`: an index in a collection of Milvus, with binary vectors and Hamming distance."""

import random
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.codes.bits import Packed, pack
from proxyhash.columns import Column, ColumnsLike, ColumnType, check_columns
from proxyhash.index.base import Index, code_length
from proxyhash.index.calibration import Calibration
from proxyhash.index.exchange.content import CodeBatch, CodeContent, make_batch
from proxyhash.index.local.items import FileStat, Item, Labels, Source, check_found, check_keys, check_labels
from proxyhash.index.milvus import collection
from proxyhash.index.milvus.attributes import make_attributes, parse_columns, parse_item, parse_types, to_condition
from proxyhash.index.milvus.collection import ATTRIBUTES, REQUEST_TIMEOUT, CollectionMeta
from proxyhash.index.milvus.location import Location, parse_location
from proxyhash.index.milvus.retry import call_with_retry
from proxyhash.index.milvus.rows import (
    ItemIdGenerator,
    label_condition,
    make_rows,
    parse_file_stat,
    quote_key,
    unquote_key,
)
from proxyhash.index.milvus.search import CollectionSearch, add_codes, make_matches, rerank
from proxyhash.index.model_store import copy_model, import_hasher, load_encoder, load_hasher, model_dir
from proxyhash.index.queries import QueriesLike, encode_items, encode_queries
from proxyhash.index.results import AddResult, IndexInfo, Match, Matches
from proxyhash.index.search_params import SearchParams, check_rerank
from proxyhash.index.where.binding import LABEL
from proxyhash.index.where.expression import Comparison, Expression
from proxyhash.models.encoder import ModelEncoder
from proxyhash.models.storage import vector_width
from proxyhash.utils.errors import FilterError, InputError
from proxyhash.utils.legacy_names import MILVUS_ITEM_ID
from proxyhash.utils.paths import cache_root

if TYPE_CHECKING:
    from proxyhash.index.folder_sync import FolderSync
    from proxyhash.index.vector_sync import VectorSync
    from proxyhash.models.hasher import Hasher

_KEYS_PER_REQUEST = 4096
_ITEM_FIELDS = ("key", MILVUS_ITEM_ID, "labels", "file")
_ITEMS_FOR_TYPES = 1000  # that are read to learn the types of columns
_COPY_ADVICE = "export it and import the file into a new index"
_NEAR_RANDOM_CODES = 8  # items that are found for each random code


class MilvusIndex(Index):
    """An index in a collection of Milvus. Any number of processes and machines may write and search at once.

    The server holds codes, keys, labels and the fingerprint of the model. The model itself is given once on each machine
    that encodes, which keeps a copy in its cache folder.
    """

    def __init__(
        self,
        location: Location,
        client: Any,
        meta: CollectionMeta,
        encoder: ModelEncoder | None = None,
        *,
        device: str = "cpu",
    ) -> None:
        self.location, self.client, self.meta = location, client, meta
        self._encoder, self.device = encoder, device
        self._item_ids = ItemIdGenerator()
        self._requests = CollectionSearch(client, location, meta.has_columns)
        self._item_fields = [*_ITEM_FIELDS, *([ATTRIBUTES] if meta.has_columns else [])]

    @classmethod
    def open_address(
        cls, address: str, *, model: str | Path | ModelEncoder | None = None, bits: int | None = None, device: str = "cpu"
    ) -> "MilvusIndex":
        """Open the index at an address, or create one there; see `Index.open`."""
        location = parse_location(address)
        encoder = None if model is None else load_encoder(model, device)
        name = None if encoder is None else copy_model(encoder, cache_root())
        client = collection.connect(location)
        try:
            meta = collection.read_meta(client, location)
            if meta is None:
                meta = _new_meta(location, encoder, name, bits)
                collection.create(client, location, meta)
            _check(location, meta, encoder, name, bits)
            collection.load(client, location)
        except BaseException:
            client.close()
            raise
        return cls(location, client, meta, encoder, device=device)

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.meta.bits

    @property
    def model(self) -> str | None:
        """Return the fingerprint of the model, None if the codes came from elsewhere."""
        return self.meta.model

    @property
    def encoder(self) -> ModelEncoder:
        """Return the model for encoding, from the copy on this machine."""
        if self._encoder is None:
            self._encoder = load_encoder(self._model_folder(), self.device)
        return self._encoder

    @property
    def width(self) -> int | None:
        """Return the number of values of the vectors that the model takes; None if it takes images, or without a model."""
        return self.meta.width

    @property
    def hasher(self) -> "Hasher":
        """Return the model as a torch network, from the copy on this machine."""
        if not isinstance(self._encoder, import_hasher()):
            self._encoder = load_hasher(self._model_folder(), self.device)
        return self._encoder

    def _model_folder(self) -> Path:
        if self.model is None:
            raise InputError(f"{self.location} holds codes from elsewhere and has no model, so search it with codes.")
        folder = model_dir(cache_root(), self.model)
        if not folder.is_dir():
            raise InputError(f"{self.location} has codes of model {self.model}, which is not on this machine; give --model.")
        return folder

    @property
    def calibration(self) -> Calibration | None:
        """Return the expected precision by distance, if the model is on this machine and was calibrated."""
        return None if self.model is None else Calibration.load(model_dir(cache_root(), self.model), self.bits)

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Return the types of the columns of some items: Milvus does not know which columns there are."""
        if not self.meta.has_columns:
            return {}
        types: dict[str, ColumnType] = {}
        for row in self._rows_in_order("", ["key", ATTRIBUTES], _ITEMS_FOR_TYPES):
            types |= parse_types(row[ATTRIBUTES])
        return dict(sorted(types.items()))

    @property
    def generation(self) -> Hashable:
        """Return the time in seconds: Milvus does not tell whether a collection has changed."""
        return int(time.monotonic())

    def __len__(self) -> int:
        """Return the number of items."""
        return int(self._query(filter="", output_fields=["count(*)"])[0]["count(*)"])

    def add(
        self,
        items: QueriesLike,
        keys: Sequence[str] | None = None,
        labels: Labels | None = None,
        *,
        columns: ColumnsLike | None = None,
        keep_vectors: bool = False,
    ) -> AddResult:
        """Add packed codes, vectors or images in batches, each in Milvus's log when the request returns; see `Index.add`.

        An error in between leaves complete batches; adding the same again completes them. The number of replaced items is
        the difference in size, so it is an estimate while others write.
        """
        start = time.monotonic()
        check_keeps_nothing(self.location, keep_vectors=keep_vectors)
        encoded = encode_items(items, keys, self.bits, lambda: self.encoder, self.width)
        codes, names = encoded.codes, encoded.names
        check_keys(names, len(codes))
        check_labels(labels, len(codes))
        checked = check_columns(columns, len(codes), self.columns) if columns else {}
        replaced = self.store(codes, names, labels, columns=checked)
        return AddResult(len(codes) - replaced, replaced, seconds=time.monotonic() - start)

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels | None,
        files: Sequence[str] | None = None,
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
    ) -> int:
        """Write items, and return how many they replaced."""
        if columns and not self.meta.has_columns:
            raise InputError(f"{self.location} was made by an earlier release and cannot hold columns; {_COPY_ADVICE}.")
        before = len(self)
        attributes = make_attributes(keys, labels, columns) if self.meta.has_columns else None
        rows = make_rows(codes, keys, labels, self._item_ids.take(len(codes)), files, attributes)
        for batch in rows.batches():
            collection.upsert(self.client, self.location, rows.columns(batch))
        return min(max(before + len(codes) - len(self), 0), len(codes))

    def remove(self, keys: Sequence[str]) -> int:
        """Remove items, or none if one is unknown; see `Index.remove`. Milvus deletes batch by batch."""
        wanted = list(dict.fromkeys([keys] if isinstance(keys, str) else keys))
        check_found(wanted, self.rows(wanted, ["key"]))
        for part in _chunks(wanted):
            self._request("delete", ids=[quote_key(key) for key in part])
        return len(wanted)

    def _search(self, queries: QueriesLike, params: SearchParams) -> list[Matches]:
        """Return the matches of each query. Of items tied at the k-th distance, Milvus chooses."""
        if params.refine or params.oversample is not None:
            raise InputError("An index on Milvus has no refinement; leave out refine and oversample.")
        if params.nprobe is not None:
            raise InputError("An index on Milvus is searched exactly; leave nprobe out.")
        if params.plan is not None:
            raise InputError("Milvus chooses its own plan; leave the plan out.")
        encoded = encode_queries(queries, self.bits, lambda: self.encoder, self.width)
        check_rerank(params, has_embeddings=encoded.embeddings is not None)
        radius = self.bits if params.radius is None else min(params.radius, self.bits)
        rows = self._find(encoded.codes, radius, params)
        if params.rerank is not None or params.with_codes:
            rows = self._add_codes(rows)
        if params.rerank is not None and encoded.embeddings is not None:
            rows = [rerank(row, nu)[: params.k] for row, nu in zip(rows, encoded.embeddings, strict=True)]
            if not params.with_codes:
                rows = [[match._replace(code=None) for match in row] for row in rows]
        rows = [[match for match in row if match.distance <= radius] for row in rows]
        return make_matches(encoded.names, rows, self.calibration, params.threshold)

    def _find(self, codes: Packed, radius: int, params: SearchParams) -> list[list[Match]]:
        """Return the matches of each query before they are re-ranked."""
        condition = "" if params.where is None else self._condition(params.where)
        try:
            if params.k is None:
                return self._requests.range_search(codes, radius, condition)
            return self._requests.nearest(codes, max(params.k, params.rerank or 0), condition)
        except InputError as error:
            if condition and "cannot parse expression" in str(error):
                raise InputError(f"{self.location} cannot be searched by label, which needs Milvus 2.4 or later.") from error
            raise

    def _condition(self, where: Expression) -> str:
        """Return a filter in the language of Milvus; a collection of an older release is filtered by labels only."""
        if self.meta.has_columns:
            return to_condition(where)
        if not isinstance(where, Comparison) or where.name != LABEL or where.operator != "in":
            raise FilterError(f"The index was made by an earlier release and has labels only; {_COPY_ADVICE}.")
        return label_condition([str(label) for label in where.values])

    def _add_codes(self, rows: list[list[Match]]) -> list[list[Match]]:
        """Return the matches of each query with their codes."""
        stored = self.rows({match.key for row in rows for match in row}, ["key", "code"])
        codes = {key: _code(row) for key, row in stored.items()}
        return [add_codes(row, codes) for row in rows]

    def item(self, key: str) -> Item:
        """Return an item by its key."""
        return parse_item(self._row(key, self._item_fields))

    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item."""
        return _code(self._row(key, ["key", "code"]))[None]

    def rows(self, keys: Iterable[str], fields: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return some fields of those items that exist, by key."""
        found: dict[str, dict[str, Any]] = {}
        for part in _chunks(list(keys)):
            rows = self._request(
                "get", ids=[quote_key(key) for key in part], output_fields=list(fields), **self._consistency
            )
            found.update((unquote_key(row["key"]), row) for row in rows)
        return found

    def files_of_source(self, source: str) -> dict[str, FileStat]:
        """Return the keys that came from a folder, with size and time of their files as they were then."""
        rows = self._rows_in_order(f'file like "{source}%"', ["key", "file"])
        return {unquote_key(row["key"]): parse_file_stat(row["file"]) for row in rows}

    def _rows_in_order(self, condition: str, fields: Sequence[str], limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield some fields of the items that meet a condition, in the order of their stored keys."""
        pages = self.client.query_iterator(
            self.location.collection,
            batch_size=min(_KEYS_PER_REQUEST, limit or _KEYS_PER_REQUEST),
            limit=-1 if limit is None else limit,
            filter=condition,
            output_fields=list(fields),
            **self._consistency,
        )
        try:
            while page := call_with_retry(pages.next, self.location):
                yield from page
        finally:
            pages.close()

    def _list_items(self, after: str | None, limit: int) -> list[Item]:
        """Return items in the order of their stored keys, in which most special characters are percent-encoded."""
        condition = "" if after is None else f'key > "{quote_key(after)}"'
        return [parse_item(row) for row in self._rows_in_order(condition, self._item_fields, limit)]

    def _sample_items(self, count: int) -> list[Item]:
        """Return some of the items near random codes: Milvus cannot draw items at random."""
        codes = pack(np.random.default_rng().random((count, self.bits)) < 0.5)
        near = {match.key for row in self._requests.nearest(codes, _NEAR_RANDOM_CODES) for match in row}
        keys = random.sample(sorted(near), min(count, len(near)))
        found = {key: parse_item(row) for key, row in self.rows(keys, self._item_fields).items()}
        if len(found) < count:
            found.update((item.key, item) for item in self._list_items(None, count))
        return random.sample(list(found.values()), min(count, len(found)))

    def folder_sync(self, root: Path, prefix: str) -> "FolderSync":
        """Return the state of the items that came from a folder."""
        from proxyhash.index.milvus.folder_sync import MilvusFolderSync

        return MilvusFolderSync(self, root, prefix)

    def vector_sync(self, source: Source, *, keep_vectors: bool) -> "VectorSync":  # noqa: ARG002
        """Return where the items of a file of vectors go; the server does not store which file they came from."""
        from proxyhash.index.milvus.folder_sync import MilvusVectorSync

        check_keeps_nothing(self.location, keep_vectors=keep_vectors)
        return MilvusVectorSync(self)

    @contextmanager
    def _content(self) -> Iterator[CodeContent]:
        """Yield all items and codes in the order of their stored keys; what others write meanwhile may be among them."""

        types, fractions = self._all_types()

        def read() -> Iterator[CodeBatch]:
            rows = self._rows_in_order("", [*self._item_fields, "code"])
            while batch := list(islice(rows, _KEYS_PER_REQUEST)):
                yield make_batch([parse_item(row) for row in batch], np.stack([_code(row) for row in batch]), types)

        yield CodeContent(self.bits, len(self), read, self.model, columns=types, fractions=fractions)

    def _all_types(self) -> tuple[dict[str, ColumnType], frozenset[str]]:
        """Return the types of the columns of all items, and which have numbers that are not whole."""
        types: dict[str, ColumnType] = {}
        fractions = set()
        for row in self._rows_in_order("", ["key", ATTRIBUTES]) if self.meta.has_columns else ():
            types |= parse_types(row[ATTRIBUTES])
            fractions |= {name for name, value in parse_columns(row[ATTRIBUTES]).items() if isinstance(value, float)}
        return dict(sorted(types.items())), frozenset(fractions)

    def info(self) -> IndexInfo:
        """Return a description of the index."""
        plan = f"Milvus (BIN_FLAT, {self.location.consistency} consistency)"
        return IndexInfo(
            str(self.location),
            len(self),
            self.bits,
            self.model,
            plan,
            self.calibration is not None,
            None,
            None,
            self.input,
            self.width,
            columns=self.columns,
        )

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    @property
    def _consistency(self) -> dict[str, str]:
        return {"consistency_level": self.location.consistency}

    def _query(self, **arguments: Any) -> Any:
        return self._request("query", **arguments, **self._consistency)

    def _request(self, call: str, **arguments: Any) -> Any:
        """Call a method of the client for this collection, with retries."""
        method = getattr(self.client, call)
        return call_with_retry(lambda: method(self.location.collection, timeout=REQUEST_TIMEOUT, **arguments), self.location)

    def _row(self, key: str, fields: Sequence[str]) -> dict[str, Any]:
        found = self.rows([key], fields)
        check_found([key], found, "")
        return found[key]


def check_keeps_nothing(location: Location, *, keep_vectors: bool) -> None:
    """Raise an InputError if vectors are to be kept."""
    if keep_vectors:
        raise InputError(f"{location} is on Milvus, which stores codes only; keep the file of vectors, and leave this out.")


def _new_meta(location: Location, encoder: ModelEncoder | None, name: str | None, bits: int | None) -> CollectionMeta:
    if encoder is None and bits is None:
        raise InputError(f"There is no index at {location}; to make one, say which model or how many bits it is for.")
    width = None if name is None else vector_width(model_dir(cache_root(), name))
    return CollectionMeta(code_length(encoder, bits), name, width)


def _check(
    location: Location, meta: CollectionMeta, encoder: ModelEncoder | None, name: str | None, bits: int | None
) -> None:
    if bits is not None and bits != meta.bits:
        raise InputError(f"{location} is an index of {meta.bits} bits, not {bits}.")
    if encoder is not None and name != meta.model:
        raise InputError(f"{location} was made with another model, whose codes cannot be compared; leave --model out.")


def _code(row: dict[str, Any]) -> Packed:
    """Return the packed code (bytes,) of a row."""
    return np.frombuffer(row["code"][0], np.uint8)


def _chunks(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[first : first + _KEYS_PER_REQUEST] for first in range(0, len(keys), _KEYS_PER_REQUEST))
