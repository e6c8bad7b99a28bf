"""Memory layout of clustered codes: bit planes, cluster by cluster, each sorted by distance to its centroid.

A block is 256 codes of one cluster. Its bit planes hold, bit by bit, code XOR centroid. A shell is all codes of a cluster at
one distance from the centroid. Shells follow each other, so that a block holds a few neighboring ones.

Let a query differ from the centroid in d bits, and a code of shell s in m of the same bits. Then the code is d + s - 2 m
from the query. It is within a limit if m >= (d + s - limit) / 2. The d planes of the bits where the query differs decide
that, which are few of 64 if the cluster is near. As m is at most d and at most s, a code of shell s is at least |d - s| from
the query, which is the triangle inequality: it prunes most blocks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Int64s, ItemIds

NO_SPAN = (2**15 - 1, -1)  # of a cluster without codes: beyond any limit

Pairs = NDArray[np.int16]


class Clusters(NamedTuple):
    """C clusters of codes of W words in B blocks; the slot of a code is 256 times its block plus its index in the planes."""

    centroids: Words
    """(C, W)"""
    starts: Int64s
    """(C + 1,): cluster c has the blocks starts[c] to starts[c + 1]"""
    spans: Pairs
    """(C, 2): lowest and highest shell of a cluster"""
    shells: Pairs
    """(B, 2): lowest and highest shell of a block"""
    planes: Words
    """(B, 64 W + 1, 4); the last plane of a block marks empty slots, whose bits are 0 in all other planes"""
    hidden: Words
    """(B, 4): slots that are not found, because they are empty, their codes were removed, or a filter excludes them"""
    item_ids: ItemIds
    """(256 B,)"""
