"""Distinct corners of the cube nearest to given points, eq. (hashH*)."""

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import pack
from proxyhash.proxies.geometry import Floats


def sign(values: Floats) -> Floats:
    """Return +1 where a value is at least 0 and -1 elsewhere, in the type of `values`: sgn(0) = +1."""
    return np.where(values >= 0, values.dtype.type(1), values.dtype.type(-1))


def is_binary(weights: Floats) -> bool:
    """Return whether every entry is exactly +1 or -1."""
    return bool((np.abs(weights) == 1).all())


def distinct_corners(points: Floats) -> Floats:
    """Return sgn(points) (C, d), changed only where rows coincide; needs C <= 2^d.

    Among classes with the same corner the one nearest to it keeps it; each of the others moves to the free corner nearest
    to its own point.
    """
    corners = sign(points)
    fit = np.abs(points).sum(axis=1)
    taken: set[bytes] = set()
    collisions = []
    for row in np.argsort(-fit, kind="stable"):
        word = _word(corners[row])
        if word in taken:
            collisions.append(row)
        taken.add(word)
    for row in collisions:
        corners[row] = next(corner for corner in _corners_by_distance(points[row]) if _word(corner) not in taken)
        taken.add(_word(corners[row]))
    return corners


def _word(corner: Floats) -> bytes:
    return pack(corner[None]).tobytes()


def _corners_by_distance(point: Floats) -> Iterator[Floats]:
    """Yield all corners, nearest first: flipping the bits F costs 4 sum_{k in F} |point_k| more squared distance.

    Subsets are enumerated by cost from a heap: each one is followed by itself with the next bit added, and by itself
    with its last bit replaced by the next.
    """
    order = np.argsort(np.abs(point), kind="stable")
    cost = np.abs(point)[order]
    nearest = sign(point)
    yield nearest
    heap: list[tuple[float, tuple[int, ...]]] = [(float(cost[0]), (0,))]
    while heap:
        total, flips = heapq.heappop(heap)
        corner = nearest.copy()
        corner[order[list(flips)]] *= -1
        yield corner
        last = flips[-1]
        if last + 1 < len(cost):
            heapq.heappush(heap, (total + float(cost[last + 1]), (*flips, last + 1)))
            heapq.heappush(heap, (total + float(cost[last + 1] - cost[last]), (*flips[:-1], last + 1)))


def bit_means(weights: Floats) -> NDArray[np.float64]:
    """Return the mean over classes of each bit of sgn(weights) (C, d), from -1 to 1; +-1 is a constant bit."""
    means: NDArray[np.float64] = sign(weights).mean(axis=0, dtype=np.float64)
    return means
