"""Centres to group codes by: the proxies, and as many more as the size of the index is worth; or none, if none help.

More centres make groups tighter, which leaves fewer codes to look at, until looking at the centres costs more than that:
about half the square root of the number of codes. New ones are drawn far from those there are (k-means++), then moved to the
majority of their codes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import hamming_distances, top_k
from proxyhash.codes.bits import Packed, to_words
from proxyhash.codes.search import parallel_over_queries
from proxyhash.index.clusters import layout_kernels
from proxyhash.index.local.blocks import Numbers
from proxyhash.utils.random import generator

WORTH_IT = 65_536  # codes: fewer are scanned in the time that a look at the centres takes
GROWTH = 8  # how many times larger an index gets before its centres are chosen anew
SAMPLE = 60_000  # codes that centres are chosen from
MOST = 1024
LARGEST_SHARE = 0.25  # of all codes that a query may have to look at; with more, a plain scan is as fast
_AT_ONCE = 64  # centres drawn between two looks at the distances
_ROUNDS = 4
_QUERIES = 64  # codes of the sample that the share is estimated with


@dataclass(frozen=True, eq=False)
class Centres:
    """Chosen centres (C, bytes), or none, and the share of all codes that a query is estimated to look at."""

    codes: Packed | None
    share: float


def choose_centres(sample: Packed, items: int, start: Packed | None, seed: int = 0) -> Centres:
    """Return centres for an index of `items` codes, of which `sample` (n, bytes) is a part, beginning with `start`."""
    count = min(MOST, 2 ** int(np.log2(max(2.0, np.sqrt(items) / 2))), len(sample) // 4)
    centres = _moved(sample, _drawn(sample, count, start, seed))
    share = share_looked_at(sample, centres, seed)
    return Centres(centres if share <= LARGEST_SHARE else None, share)


def share_looked_at(sample: Packed, centres: Packed, seed: int = 0) -> float:
    """Estimate which share of the codes the triangle inequality leaves, for queries like the codes themselves.

    The distance to the nearest other code of a sample is at least as far as that to the tenth of all: the estimate errs
    towards the scan.
    """
    chosen = generator(seed, "queries").choice(len(sample), min(_QUERIES, len(sample)), replace=False)
    limit = top_k(sample[chosen], sample, 2).distances[:, -1].astype(np.int64)
    to_own, own = _nearest(sample, centres)
    cells = np.zeros((len(centres), 8 * sample.shape[1] + 1), np.int64)
    np.add.at(cells, (own, to_own), 1)
    apart = np.abs(np.arange(cells.shape[1]) - hamming_distances(sample[chosen], centres)[:, :, None].astype(np.int64))
    return float((cells * (apart <= limit[:, None, None])).sum() / (len(chosen) * len(sample)))


def assign(codes: Packed, centres: Packed | None) -> Numbers:
    """Return the number of each code's nearest centre (n,); without centres all are in one group."""
    groups = np.zeros(len(codes), np.uint16)
    if centres is not None and len(codes):
        items, c = to_words(codes), np.ascontiguousarray(to_words(centres).T)
        pieces = -(-len(codes) // 8192)

        def work(rows: slice) -> None:
            part = slice(rows.start * 8192, min(rows.stop * 8192, len(codes)))
            layout_kernels.nearest_centres(items[:, part], c, groups[part])

        parallel_over_queries(pieces, None, work)
    return groups


def _drawn(sample: Packed, count: int, start: Packed | None, seed: int) -> Packed:
    """Draw centres from the sample, each with a probability that grows with the square of its distance to the others."""
    random = generator(seed, "centres")
    centres = sample[random.choice(len(sample), 1)] if start is None or not len(start) else start[:count]
    nearest = top_k(sample, centres, 1).distances[:, 0].astype(np.float64)
    while len(centres) < count and nearest.any():
        new = random.choice(len(sample), min(_AT_ONCE, count - len(centres)), p=nearest**2 / (nearest**2).sum())
        centres = np.concatenate([centres, sample[new]])
        nearest = np.minimum(nearest, top_k(sample, sample[new], 1).distances[:, 0])
    return centres


def _moved(sample: Packed, centres: Packed) -> Packed:
    """Move each centre to the majority of its codes, bit by bit, a few times: k-means in Hamming space."""
    on = np.unpackbits(sample, axis=1, bitorder="little").astype(np.float32)
    for _ in range(_ROUNDS):
        own = assign(sample, centres)
        order = np.argsort(own, kind="stable")
        held, first = np.unique(own[order], return_index=True)
        counts = np.diff(np.append(first, len(own)))
        share = np.add.reduceat(on[order], first, axis=0) / counts[:, None]
        centres = centres.copy()
        centres[held] = np.packbits(share > 0.5, axis=1, bitorder="little")
    return np.unique(centres, axis=0)


def _nearest(sample: Packed, centres: Packed) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    found = top_k(sample, centres, 1)
    return found.distances[:, 0], found.indices[:, 0]
