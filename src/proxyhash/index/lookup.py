"""From distances and positions to what a person reads: keys, labels, and what a distance is worth."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.calibration import Calibration
from proxyhash.index.items import Item
from proxyhash.index.results import Match, Matches
from proxyhash.index.segment import distances_of, positions_of

Row = tuple[Words, NDArray[np.float32] | None]
"""What was found for a query, best first: keys of distance and position, and asymmetric distances if it was re-ranked."""


def as_matches(
    name: str, row: Row, known: dict[int, Item], calibration: Calibration | None, threshold: float, *, exact: bool
) -> Matches:
    """Return the matches of one query; items that are not `known` any more are left out.

    There is no match if the nearest one's expected precision is below the threshold.
    """
    keys, _ = row
    matched = None
    if calibration is not None:
        matched = len(keys) > 0 and bool(calibration.at(distances_of(keys).min()) >= threshold)
    return Matches(name, tuple(_found(row, known, calibration)), matched, exact)


def _found(row: Row, known: dict[int, Item], calibration: Calibration | None) -> list[Match]:
    keys, scores = row
    positions, distances = positions_of(keys).tolist(), distances_of(keys).tolist()
    values = [None] * len(keys) if scores is None else [round(float(score), 4) for score in scores]
    matches = []
    for position, distance, score in zip(positions, distances, values, strict=True):
        if position in known:
            precision = None if calibration is None else float(calibration.precision[distance])
            item = known[position]
            matches.append(Match(item.key, distance, position, item.labels, precision, score))
    return matches
