"""Questions to Milvus and what comes back: nearest items, and all within a radius however many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.calibration import Calibration
from proxyhash.index.local.items import labels_from
from proxyhash.index.milvus.collection import CALL
from proxyhash.index.milvus.location import Location
from proxyhash.index.milvus.retry import patiently
from proxyhash.index.milvus.rows import given_key
from proxyhash.index.reranking import asymmetric_distances
from proxyhash.index.results import Match, Matches
from proxyhash.utils.errors import InputError

MOST = 16_384  # results of a query, and queries of a request: Milvus gives no more
_RESULTS_AT_ONCE = 1_000_000  # of one request
_LAST = 2**62

Row = list[Match]
_rank = attrgetter("distance", "position")


@dataclass(frozen=True)
class Searcher:
    """Asks a collection."""

    client: Any
    place: Location

    def nearest(self, codes: Packed, k: int) -> list[Row]:
        """Return the k nearest of each query (Q, bytes), nearest first, ties by position."""
        if k > MOST:
            raise InputError(f"Milvus finds at most {MOST:,} items for a query, not {k:,}.")
        return self._found(codes, k)

    def within(self, codes: Packed, radius: int) -> list[Row]:
        """Return all items within a radius of each query, nearest first."""
        rows = self._found(codes, MOST, radius)
        return [self._completed(code, radius, row) for code, row in zip(codes, rows, strict=True)]

    def _completed(self, code: Packed, radius: int, row: Row, low: int = 0, high: int = _LAST) -> Row:
        """Return everything, if a row is as long as Milvus lets it be: items are halved by position and asked for again."""
        if len(row) < MOST:
            return row
        middle = sorted(match.position for match in row)[len(row) // 2]
        if middle == low:
            raise InputError(f"{MOST:,} items were added at one instant; Milvus cannot list them all.")
        parts = []
        for start, stop in ((low, middle), (middle, high)):
            condition = f"{start} <= position and position < {stop}"
            found = self._found(code[None], MOST, radius, condition)[0]
            parts += self._completed(code, radius, found, start, stop)
        return sorted(parts, key=_rank)

    def _found(self, codes: Packed, limit: int, radius: int | None = None, condition: str = "") -> list[Row]:
        at_once = max(1, min(MOST, _RESULTS_AT_ONCE // limit))
        parts = [codes[first : first + at_once] for first in range(0, len(codes), at_once)]
        return [row for part in parts for row in self._ask(part, limit, radius, condition)]

    def _ask(self, codes: Packed, limit: int, radius: int | None, condition: str) -> list[Row]:
        # Milvus's radius is the first distance that is too far.
        parameters = {} if radius is None else {"radius": radius + 1}
        data = [code.tobytes() for code in codes]

        def ask() -> Any:
            return self.client.search(
                self.place.collection,
                data,
                filter=condition,
                limit=limit,
                output_fields=["position", "labels"],
                search_params={"metric_type": "HAMMING", "params": parameters},
                consistency_level=self.place.consistency,
                timeout=CALL,
            )

        return [sorted(_matches(hits), key=_rank) for hits in patiently(ask, self.place)]


def _matches(hits: Any) -> Row:
    """Return what was found for a query; servers call the key of a hit by different names, so it is read from the list."""
    found = []
    for key, distance, hit in zip(hits.ids, hits.distances, hits, strict=True):
        entity = hit["entity"]
        found.append(Match(given_key(key), int(distance), entity["position"], labels_from(entity["labels"])))
    return found


def with_scores(row: Row, nu: NDArray[np.float32], codes: Mapping[str, Packed]) -> Row:
    """Return the matches of a query ordered by asymmetric distance; what was removed meanwhile is left out."""
    row = [match for match in row if match.key in codes]
    if not row:
        return row
    stored = np.ascontiguousarray(to_words(np.stack([codes[match.key] for match in row])).T)
    scores = asymmetric_distances(nu[None], stored[None])[0]
    scored = [match._replace(score=round(float(score), 4)) for match, score in zip(row, scores, strict=True)]
    order = np.lexsort((np.arange(len(row)), np.round(scores, 6)))
    return [scored[place] for place in order]


def as_answer(names: Sequence[str], rows: Sequence[Row], calibration: Calibration | None, threshold: float) -> list[Matches]:
    """Return what was found for each query, with what distances are worth."""
    if calibration is None:
        return [Matches(name, tuple(row)) for name, row in zip(names, rows, strict=True)]
    answer = []
    for name, row in zip(names, rows, strict=True):
        known = [match._replace(expected_precision=float(calibration.precision[match.distance])) for match in row]
        nearest = min((match.distance for match in row), default=None)
        matched = nearest is not None and bool(calibration.at(nearest) >= threshold)
        answer.append(Matches(name, tuple(known), matched))
    return answer
