"""What the search process does: batches of queries in, answers as JSON out.

A process of its own, so that to search and to talk to clients share no interpreter: each has a core.
"""

import gc
import signal
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from proxyhash.codes.bits import binarize, pack
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.results import Match
from proxyhash.serve.logs import places
from proxyhash.serve.messages import Found, SearchAnswer
from proxyhash.serve.processes import Ready
from proxyhash.utils.errors import InputError


class Query(msgspec.Struct, frozen=True, array_like=True):
    """What is to be found, with the bytes of a packed code or of an embedding nu (bits,) of float32."""

    row: bytes
    real: bool  # whether it is an embedding
    k: int
    radius: int
    rerank: int = 0

    @property
    def plan(self) -> tuple[object, ...]:
        """Return what queries must share to be answered by one scan; k only nearly, as the longer list holds the shorter."""
        return self.k.bit_length(), self.radius, self.rerank, self.real, len(self.row)


class SearchReply(msgspec.Struct, frozen=True, array_like=True):
    """A `SearchAnswer` as JSON, or the sentence that says why there is none; a `failure` is not the query's fault."""

    answer: bytes = b""
    refusal: str = ""
    failure: str = ""


def work(connection: Connection, folder: str, remembered: int, threshold: float) -> None:
    """Answer batches until the service is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone; the service lets us finish
    with suppress(EOFError, OSError):
        try:
            searcher = Searcher(Path(folder), remembered, threshold)
        except InputError as error:
            connection.send_bytes(msgspec.json.encode(Ready(str(error))))
            return
        connection.send_bytes(msgspec.json.encode(Ready()))
        queries = msgspec.msgpack.Decoder(list[Query])
        while True:
            connection.send_bytes(msgspec.msgpack.encode(searcher.answer(queries.decode(connection.recv_bytes()))))


class Searcher:
    """Answers batches of queries from an index."""

    def __init__(self, folder: Path, remembered: int, threshold: float) -> None:
        """Read the codes and compile kernels before anyone waits for them."""
        self._index, self._threshold = LocalIndex.open_folder(folder, item_cache_size=remembered), threshold
        self._index.search(np.zeros((2, (self._index.bits + 7) // 8), np.uint8), 1, with_codes=True)
        gc.collect()
        gc.freeze()  # what is here now stays, and need not be looked through again and again

    def answer(self, queries: Sequence[Query]) -> list[SearchReply]:
        """Search with several queries, a scan for all that can share one."""
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            groups[query.plan].append(number)
        replies = [SearchReply()] * len(queries)
        for numbers in groups.values():
            for number, reply in zip(numbers, self._safely([queries[number] for number in numbers]), strict=True):
                replies[number] = reply
        return replies

    def _safely(self, queries: Sequence[Query]) -> Sequence[SearchReply]:
        try:
            return self._one_scan(queries)
        except InputError as error:
            return [SearchReply(refusal=str(error))] * len(queries)
        except Exception as error:
            return [SearchReply(failure=f"{type(error).__name__}: {error}, in {', '.join(places(error))}")] * len(queries)

    def _one_scan(self, queries: Sequence[Query]) -> list[SearchReply]:
        first, bits = queries[0], self._index.bits
        rows = np.frombuffer(b"".join(query.row for query in queries), np.float32 if first.real else np.uint8)
        rows = rows.reshape(len(queries), -1)
        options: dict[str, Any] = {
            "rerank": first.rerank or None,
            "radius": None if first.radius >= bits else first.radius,
            "threshold": self._threshold,
        }
        found = self._index.search(rows, max(query.k for query in queries), with_codes=True, **options)
        codes = pack(binarize(rows)) if first.real else rows
        encode = msgspec.json.Encoder().encode
        return [
            SearchReply(
                encode(
                    SearchAnswer(
                        code.tobytes().hex(),
                        bits,
                        matches.matched,
                        len(matches) < query.k or query.radius >= bits,
                        [_found(match) for match in matches[: query.k]],
                    )
                )
            )
            for query, code, matches in zip(queries, codes, found, strict=True)
        ]


def _found(match: Match) -> Found:
    code = "" if match.code is None else match.code.hex()
    picture = match.path is not None
    return Found(match.key, match.distance, match.labels, code, picture, match.expected_precision, match.score)
