"""From distances and positions to what a person reads: keys, labels, and what a distance is worth."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.calibration import Calibration
from proxyhash.index.clusters.segment import distances_of, positions_of
from proxyhash.index.local.items import Item
from proxyhash.index.results import Match, Matches


class Row(NamedTuple):
    """What was found for a query, best first: `keys` of distance and position (n,), and what else was asked for."""

    keys: Words
    scores: NDArray[np.float32] | None = None  # asymmetric distances (n,), if it was re-ranked
    codes: list[bytes] | None = None  # packed, if they were asked for

    def within(self, radius: int | None) -> "Row":
        """Return what is at most `radius` bits away."""
        if radius is None:
            return self
        near = np.flatnonzero(distances_of(self.keys) <= radius)
        scores = None if self.scores is None else self.scores[near]
        return Row(self.keys[near], scores, None if self.codes is None else [self.codes[place] for place in near])


def as_matches(
    name: str, row: Row, known: Mapping[int, Item], calibration: Calibration | None, threshold: float, *, exact: bool
) -> Matches:
    """Return the matches of one query; items that are not `known` any more are left out.

    There is no match if the nearest one's expected precision is below the threshold.
    """
    keys, matched = row.keys, None
    if calibration is not None:
        matched = len(keys) > 0 and bool(calibration.at(distances_of(keys).min()) >= threshold)
    return Matches(name, tuple(_found(row, known, calibration)), matched, exact)


def _found(row: Row, known: Mapping[int, Item], calibration: Calibration | None) -> list[Match]:
    keys, scores, codes = row
    nothing = [None] * len(keys)
    positions, distances = positions_of(keys).tolist(), distances_of(keys).tolist()
    values = nothing if scores is None else [round(float(score), 4) for score in scores]
    matches = []
    for position, distance, score, code in zip(positions, distances, values, codes or nothing, strict=True):
        if position in known:
            precision = None if calibration is None else float(calibration.precision[distance])
            item = known[position]
            matches.append(Match(item.key, distance, position, item.labels, precision, score, item.path, code))
    return matches


def packed_rows(stored: Words, width: int) -> list[list[bytes]]:
    """Return codes (Q, k, W) as packed bytes, `width` each."""
    queries, k, parts = stored.shape
    everything = np.ascontiguousarray(stored, "<u8").tobytes()
    codes = [everything[start : start + width] for start in range(0, len(everything), 8 * parts)]
    return [codes[q * k : (q + 1) * k] for q in range(queries)]
