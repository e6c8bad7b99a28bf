"""Searches as the service makes them: many at once, and items with a label only."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import pack, signs
from proxyhash.index.embedded import EmbeddedIndex
from proxyhash.index.results import Match
from proxyhash.serve.messages import Found, Options, SearchAnswer
from proxyhash.support.errors import InputError

WIDER = 8  # times as many items are looked through if too few had the label


@dataclass(frozen=True, eq=False)
class Query:
    """A packed code (bytes,) or an embedding nu (bits,), and what is to be found."""

    row: NDArray[Any]
    k: int
    radius: int
    rerank: int = 0

    @property
    def plan(self) -> tuple[object, ...]:
        """Return what queries must share to be answered by one scan; k only nearly, as the longer list holds the shorter."""
        return self.k.bit_length(), self.radius, self.rerank, self.row.dtype, self.row.shape

    @property
    def code(self) -> str:
        """Return the code as hexadecimal digits."""
        row = self.row if self.row.dtype == np.uint8 else pack(signs(self.row[None]))[0]
        return row.tobytes().hex()


class Searcher:
    """Answers batches of queries from an index."""

    def __init__(self, index: EmbeddedIndex, threshold: float) -> None:
        self._index, self._threshold = index, threshold

    def answer(self, queries: Sequence[Query]) -> list[SearchAnswer | Exception]:
        """Search with several queries, a scan for all that can share one."""
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            groups[query.plan].append(number)
        answers: list[SearchAnswer | Exception | None] = [None] * len(queries)
        for numbers in groups.values():
            members = [queries[number] for number in numbers]
            for number, answer in zip(numbers, self._one_scan(members), strict=True):
                answers[number] = answer
        return answers  # type: ignore[return-value]  # every query is in a group

    def _one_scan(self, queries: Sequence[Query]) -> Sequence[SearchAnswer | Exception]:
        rows, first, most = np.stack([query.row for query in queries]), queries[0], max(query.k for query in queries)
        bits = self._index.bits
        radius = None if first.radius >= bits else first.radius
        options: dict[str, Any] = {"rerank": first.rerank, "radius": radius, "threshold": self._threshold}
        try:
            found = self._index.search(rows, most, codes=True, **options)
        except InputError as error:
            return [error] * len(queries)
        return [
            SearchAnswer(
                query.code,
                bits,
                matches.matched,
                len(matches) < query.k or query.radius >= bits,
                [_found(match) for match in matches.found[: query.k]],
            )
            for query, matches in zip(queries, found, strict=True)
        ]


def _found(match: Match) -> Found:
    code = "" if match.code is None else match.code.hex()
    picture = match.path is not None
    return Found(match.key, match.distance, match.labels, code, picture, match.expected_precision, match.score)


async def labelled(ask: Callable[[Query], Awaitable[SearchAnswer]], query: Query, label: str, depth: int) -> SearchAnswer:
    """Return the k nearest items with a label, of the `depth` nearest: ever more are looked through until k are found."""
    wide = min(depth, WIDER * query.k)
    while True:
        answer = await ask(replace(query, k=wide))
        matches = [match for match in answer.matches if label in match.labels]
        exhausted = len(answer.matches) < wide
        if exhausted or wide == depth or len(matches) >= query.k:
            break
        wide = min(depth, WIDER * wide)
    enough = len(matches) >= query.k and query.radius >= answer.bits
    complete = enough or (exhausted and len(matches) <= query.k)
    return SearchAnswer(answer.code, answer.bits, answer.matched, complete, matches[: query.k])


def query_of(row: NDArray[Any], options: Options, rerank: int = 0) -> Query:
    """Return a query for what a client asks."""
    return Query(row, options.k, options.radius, rerank)
