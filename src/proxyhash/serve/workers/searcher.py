"""Search process: batches of queries to responses in JSON.

It is a process of its own, so that searching and the connections of clients do not share an interpreter.
"""

import gc
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import binarize, pack, to_words
from proxyhash.columns import to_json_value
from proxyhash.index.base import Index
from proxyhash.index.clusters.segment import build_flat_segment
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.milvus.location import is_milvus
from proxyhash.index.queries import EncodedQueries, from_embeddings
from proxyhash.index.refinement.refiner import StoredRows
from proxyhash.index.results import Match, Matches
from proxyhash.index.where.conditions import SpanCondition
from proxyhash.serve.workers.channel import Channel, Failure
from proxyhash.serve.workers.process import report_ready
from proxyhash.utils.errors import DamagedError, FilterError, InputError
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads


class SearchQuery(msgspec.Struct, frozen=True, array_like=True):
    """One query.

    Attributes
    ----------
    row
        Bytes of a packed code, or of an embedding (bits,) of float32.
    is_embedding
        Whether it is an embedding.
    k, radius, rerank, labels, where, refine
        See `Index.search`; no labels: all items.
    features
        Bytes of the features (num_features,) of float32 of an image or a vector; empty: not known.
    refinement, refiner_id
        Bytes of the refinement row of a stored item, and which refiner it is of; empty: it has none.
    """

    row: bytes
    is_embedding: bool
    k: int
    radius: int | None = None
    rerank: int | None = None
    labels: tuple[str, ...] = ()
    where: str | None = None
    refine: bool | None = None
    features: bytes = b""
    refinement: bytes = b""
    refiner_id: tuple[int, int] | None = None

    def scan_key(self, bits: int) -> tuple[object, ...]:
        """Return what queries share that one search of an index of so many bits can answer.

        The k nearest items begin with the nearest ones for a smaller k, but not if candidates are re-ranked. Invalid rows
        are searched apart, because one of them makes a search fail.
        """
        k = self.k.bit_length() if self.rerank is None else self.k
        filters, rows = (self.labels, self.where), (self.refine, len(self.features), len(self.refinement), self.refiner_id)
        return k, self.radius, self.rerank, filters, self.is_embedding, len(self.row), self._is_valid(bits), rows

    def _is_valid(self, bits: int) -> bool:
        if self.is_embedding:
            return bool(np.isfinite(np.frombuffer(self.row, np.float32)).all())
        return not bits % 8 or self.row[-1:] < bytes([1 << bits % 8])


class SearchReply(msgspec.Struct, frozen=True, array_like=True):
    """Response to a query in JSON, or why there is none."""

    response: bytes = b""
    failure: Failure | None = None


class _Match(msgspec.Struct, frozen=True):
    key: str
    distance: int
    labels: tuple[str, ...]
    code: str
    has_image: bool
    expected_precision: float | None
    score: float | None
    columns: dict[str, Any]


class _Response(msgspec.Struct, frozen=True):
    code: str
    bits: int
    matched: bool | None
    complete: bool
    refined: bool
    matches: list[_Match]


def run_searcher(channel: Channel, location: str, item_cache_size: int, threshold: float) -> None:
    """Answer batches of queries until the service ends."""
    try:
        searcher = Searcher(location, item_cache_size, threshold)
    except InputError as error:
        report_ready(channel, describe_error(error))
        return
    gc.collect()
    gc.freeze()  # these objects stay, so later collections need not visit them
    report_ready(channel)
    batches = msgspec.msgpack.Decoder(list[SearchQuery])
    while True:
        channel.send(msgspec.msgpack.encode(searcher.search(batches.decode(channel.receive()))))


class Searcher:
    """Answers batches of queries from an index.

    An index that is replaced by another one at the same location is noticed by the index itself.
    """

    def __init__(self, location: str, item_cache_size: int, threshold: float) -> None:
        self._location = location if is_milvus(location) else str(Path(location).absolute())
        self._threshold = threshold
        self._index = _open_index(self._location, item_cache_size)
        self._bits = self._index.bits
        self._encode = msgspec.json.Encoder().encode
        _warm_up(self._index)

    def search(self, queries: Sequence[SearchQuery]) -> list[SearchReply]:
        """Return the reply to each query; queries that can share a scan do."""
        replies = [SearchReply()] * len(queries)
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            groups[query.scan_key(self._bits)].append(number)
        for numbers in groups.values():
            for number, reply in zip(numbers, self._try_scan([queries[number] for number in numbers]), strict=True):
                replies[number] = reply
        return replies

    def _try_scan(self, queries: Sequence[SearchQuery]) -> list[SearchReply]:
        try:
            return self._scan(queries)
        except Exception as error:
            return [SearchReply(failure=describe_error(error, self._location))] * len(queries)

    def _scan(self, queries: Sequence[SearchQuery]) -> list[SearchReply]:
        first, bits = queries[0], self._index.bits
        self._bits = bits
        joined = bytearray().join(query.row for query in queries)  # numba compiles other kernels for read-only arrays
        values: NDArray[Any] = np.frombuffer(joined, np.float32 if first.is_embedding else np.uint8)
        rows = values.reshape(len(queries), len(first.row) // values.itemsize)
        found = self._index.search(
            _index_queries(queries, rows, bits),
            max(query.k for query in queries),
            radius=first.radius,
            labels=first.labels or None,
            where=first.where,
            rerank=first.rerank,
            refine=first.refine,
            threshold=self._threshold,
            with_codes=True,
        )
        codes = pack(binarize(rows)) if first.is_embedding else rows
        return [
            SearchReply(self._encode(_response(query, code.tobytes(), bits, matches)))
            for query, code, matches in zip(queries, codes, found, strict=True)
        ]


def _index_queries(queries: Sequence[SearchQuery], rows: NDArray[Any], bits: int) -> EncodedQueries:
    """Return queries with embeddings or codes `rows` (Q, ...), and what they can be refined by."""
    names, first = [f"query {number}" for number in range(len(rows))], queries[0]
    features = _join(queries, "features", np.dtype(np.float32)) if first.features else None
    if first.is_embedding:
        return from_embeddings(names, rows, bits, features)
    if not first.refinement:
        return EncodedQueries(names, rows)
    joined = _join(queries, "refinement", np.dtype(np.uint8))
    return EncodedQueries(names, rows, rows=StoredRows(joined, first.refiner_id))


def _join(queries: Sequence[SearchQuery], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the bytes of one field of all queries as rows (Q, width)."""
    joined = bytearray().join(getattr(query, name) for query in queries)
    return np.frombuffer(joined, dtype).reshape(len(queries), -1)


def _open_index(location: str, item_cache_size: int) -> Index:
    if is_milvus(location):
        return Index.open(location)
    return LocalIndex.open_folder(Path(location), item_cache_size=item_cache_size)


def _warm_up(index: Index) -> None:
    """Read all codes, and compile the kernels for few and many queries: it may take longer than a batch may take."""
    cold_start.end()
    for queries in (2, 64 * available_threads()):
        codes = np.zeros((queries, (index.bits + 7) // 8), np.uint8)
        index.search(codes, 1, with_codes=True)
        # Items that are added are in a flat segment, which grows, and of which filters select some.
        empty, item_ids = build_flat_segment(8 * codes.shape[1], 0, lambda _: None), np.arange(queries, dtype=np.uint32)
        added = empty.append(to_words(codes), item_ids)
        kept = SpanCondition(np.zeros(queries, np.uint8), [(0, 0)], None).mask(queries)
        added.select(kept).nearest(np.ascontiguousarray(to_words(codes).T), 1)


def _response(query: SearchQuery, code: bytes, bits: int, matches: Matches) -> _Response:
    found = [_match(match) for match in matches[: query.k]]
    is_complete, is_refined = _is_complete(query, bits, len(found)), matches.refined is not None
    return _Response(code.hex(), bits, matches.matched, is_complete, is_refined, found)


def _is_complete(query: SearchQuery, bits: int, count: int) -> bool:
    """Return whether all items within the radius are returned: not if there are k, or if re-ranking left some out."""
    if query.radius is None or query.radius >= bits:
        return True
    return query.rerank is None and count < query.k


def _match(match: Match) -> _Match:
    return _Match(
        match.key,
        match.distance,
        match.labels,
        "" if match.code is None else match.code.hex(),
        match.path is not None and match.row is None,
        match.expected_precision,
        match.score,
        {name: to_json_value(value) for name, value in match.columns.items()},
    )


def describe_error(error: Exception, location: str | None = None) -> Failure:
    """Return an exception as a message.

    An InputError that names the location of the index is not about the query: the index is locked, or not there. Other
    exceptions are described with their frames, for the log.
    """
    if isinstance(error, DamagedError):
        return Failure("damaged", str(error))
    if isinstance(error, FilterError):
        return Failure("filter", str(error))
    if isinstance(error, InputError):
        is_about_index = location is not None and location in str(error)
        return Failure("unavailable" if is_about_index else "input", str(error))
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return Failure("failure", f"{type(error).__name__}: {error}, in {', '.join(frames)}")
