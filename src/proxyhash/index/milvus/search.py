"""Search requests to Milvus: nearest items, and all items within a radius however many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.calibration import Calibration
from proxyhash.index.hits import asymmetric_distances
from proxyhash.index.local.items import labels_from_json
from proxyhash.index.milvus.attributes import parse_columns
from proxyhash.index.milvus.collection import ATTRIBUTES, REQUEST_TIMEOUT
from proxyhash.index.milvus.location import Location
from proxyhash.index.milvus.retry import call_with_retry
from proxyhash.index.milvus.rows import parse_path, unquote_key
from proxyhash.index.results import Match, Matches, is_matched
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import MILVUS_ITEM_ID

MAX_RESULTS = 16_384  # of a query, and queries of a request: the limit of Milvus
_RESULTS_PER_REQUEST = 1_000_000
_MAX_ITEM_ID = 2**62

_rank = attrgetter("distance", "item_id")


@dataclass(frozen=True)
class CollectionSearch:
    """Searches of one collection. Each query's matches are sorted by distance, ties by item id."""

    client: Any
    location: Location
    has_columns: bool = True

    def nearest(self, codes: Packed, k: int, condition: str = "") -> list[list[Match]]:
        """Return the k nearest items of each query (Q, bytes), of those that meet a condition."""
        if k > MAX_RESULTS:
            raise InputError(f"Milvus finds at most {MAX_RESULTS:,} items for a query, not {k:,}.")
        return self._search(codes, k, condition=condition)

    def range_search(self, codes: Packed, radius: int, condition: str = "") -> list[list[Match]]:
        """Return all items within a radius of each query (Q, bytes), of those that meet a condition."""
        found = self._search(codes, MAX_RESULTS, radius, condition)
        return [self._complete(code, radius, condition, matches) for code, matches in zip(codes, found, strict=True)]

    def _complete(
        self, code: Packed, radius: int, condition: str, matches: list[Match], low: int = 0, high: int = _MAX_ITEM_ID
    ) -> list[Match]:
        """Return all matches, if there are as many as Milvus lists: halves of the range of ids are searched again."""
        if len(matches) < MAX_RESULTS:
            return matches
        middle = sorted(match.item_id for match in matches)[len(matches) // 2]
        if middle == low:
            raise InputError(f"{MAX_RESULTS:,} items were added at one instant; Milvus cannot list them all.")
        parts = []
        for start, stop in ((low, middle), (middle, high)):
            half = f"{start} <= {MILVUS_ITEM_ID} and {MILVUS_ITEM_ID} < {stop}"
            both = f"{half} and ({condition})" if condition else half
            found = self._search(code[None], MAX_RESULTS, radius, both)[0]
            parts += self._complete(code, radius, condition, found, start, stop)
        return sorted(parts, key=_rank)

    def _search(self, codes: Packed, limit: int, radius: int | None = None, condition: str = "") -> list[list[Match]]:
        size = max(1, min(MAX_RESULTS, _RESULTS_PER_REQUEST // limit))
        parts = [codes[first : first + size] for first in range(0, len(codes), size)]
        return [matches for part in parts for matches in self._request(part, limit, radius, condition)]

    def _request(self, codes: Packed, limit: int, radius: int | None, condition: str) -> list[list[Match]]:
        # Milvus's radius is the first distance that is too far.
        parameters = {} if radius is None else {"radius": radius + 1}
        data = [code.tobytes() for code in codes]

        def request() -> Any:
            return self.client.search(
                self.location.collection,
                data,
                filter=condition,
                limit=limit,
                output_fields=[MILVUS_ITEM_ID, "labels", "file", *([ATTRIBUTES] if self.has_columns else [])],
                search_params={"metric_type": "HAMMING", "params": parameters},
                consistency_level=self.location.consistency,
                timeout=REQUEST_TIMEOUT,
            )

        return [sorted(parse_hits(hits), key=_rank) for hits in call_with_retry(request, self.location)]


def parse_hits(hits: Any) -> list[Match]:
    """Return the matches of one query; keys are read from `ids`, because servers name the field of a hit differently."""
    matches = []
    for key, distance, hit in zip(hits.ids, hits.distances, hits, strict=True):
        entity = hit["entity"]
        labels, path = labels_from_json(entity["labels"]), parse_path(entity["file"])
        columns = parse_columns(entity.get(ATTRIBUTES))
        matches.append(Match(unquote_key(key), int(distance), entity[MILVUS_ITEM_ID], labels, path=path, columns=columns))
    return matches


def add_codes(matches: list[Match], codes: Mapping[str, Packed]) -> list[Match]:
    """Return matches with their codes; items that were removed meanwhile are left out."""
    return [match._replace(code=codes[match.key].tobytes()) for match in matches if match.key in codes]


def rerank(matches: list[Match], embedding: NDArray[np.float32]) -> list[Match]:
    """Return the matches of a query, with codes, ordered by asymmetric distance to its embedding (bits,)."""
    if not matches:
        return matches
    stored = np.stack([np.frombuffer(match.code or b"", np.uint8) for match in matches])
    scores = asymmetric_distances(embedding[None], np.ascontiguousarray(to_words(stored).T)[None])[0]
    scored = [match._replace(score=round(float(score), 4)) for match, score in zip(matches, scores, strict=True)]
    return [scored[index] for index in np.lexsort((np.arange(len(matches)), np.round(scores, 6)))]


def make_matches(
    names: Sequence[str], rows: Sequence[list[Match]], calibration: Calibration | None, threshold: float
) -> list[Matches]:
    """Return the matches of each query with their expected precision."""
    out = []
    for name, row in zip(names, rows, strict=True):
        nearest = min((match.distance for match in row), default=None)
        matches = row
        if calibration is not None:
            matches = [match._replace(expected_precision=float(calibration.at(match.distance))) for match in row]
        out.append(Matches(name, tuple(matches), is_matched(nearest, calibration, threshold), plan="milvus"))
    return out
