"""How grouped codes lie in memory: planes of bits, group by group, each group ordered by distance to its centre.

A block is 256 codes of one group. Its planes hold, bit by bit, where each code differs from the centre of the group. A shell
is all codes of a group at one distance from the centre; they follow each other, so that a block holds a few neighboring
shells.

Let a query differ from the centre in d bits, and a code of shell s in m of the same: then the code is d + s - 2 m from the
query. It is within a limit if m >= (d + s - limit) / 2, and the d planes of bits where the query differs decide that, few
of 64 if the group is near. As m is at most d and at most s, a code of shell s is at least |d - s| from the query, which is
the triangle inequality: most blocks need not be looked at.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Longs, Positions

NO_SPAN = (2**15 - 1, -1)  # of a group without codes: farther than any limit

Pairs = NDArray[np.int16]


class Groups(NamedTuple):
    """C groups of codes of W words in B blocks; the place of a code is 256 times its block plus its place in the planes."""

    centres: Words
    """(C, W)"""
    starts: Longs
    """(C + 1,): group g has the blocks starts[g] to starts[g + 1]."""
    spans: Pairs
    """(C, 2): the lowest and the highest shell of a group."""
    shells: Pairs
    """(B, 2): the lowest and the highest shell of a block."""
    planes: Words
    """(B, 64 W + 1, 4); the last plane of a block marks places without a code, where all others are 0."""
    positions: Positions
    """(256 B,)"""
