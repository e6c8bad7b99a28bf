"""Connected components of codes within a radius, on several threads and without storing pairs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.duplicates.link_kernels import TILE, Pairing, Parents, Units, link_units, merge_parents
from proxyhash.index.duplicates.tables import Tables, choose_tables, table_keys
from proxyhash.index.item_ids import Int64s
from proxyhash.utils.parallel import available_threads, ordered_map
from proxyhash.utils.progress import Progress, no_progress

_SLICES_PER_THREAD = 16  # of the pairs of a table, because some are skipped and take no time
_MIN_PAIRS = 1 << 18  # in a slice; starting a thread takes as long as comparing fewer


@dataclass(frozen=True, eq=False)
class Nodes:
    """n codes to link: `words` (V, n), and optionally a second representation that must be near too.

    The second representation is `second` (V2, n), codes within `second_radius` bits, or `values` (n, D), 8-bit values within
    a Euclidean distance whose square is `squared_radius`.
    """

    words: Words
    radius: int
    second: Words | None = None
    second_radius: int = 0
    values: NDArray[np.int8] | None = None
    squared_radius: int = 0

    def __len__(self) -> int:
        """Return n."""
        return int(self.words.shape[1])

    def join(self, other: "Nodes") -> "Nodes":
        """Return these codes and those of another set with the same radii."""
        second = None if self.second is None or other.second is None else np.concatenate([self.second, other.second], axis=1)
        values = None if self.values is None or other.values is None else np.concatenate([self.values, other.values])
        return replace(self, words=np.concatenate([self.words, other.words], axis=1), second=second, values=values)

    def swap(self) -> "Nodes":
        """Return the same with both representations exchanged."""
        assert self.second is not None
        return Nodes(self.second, self.second_radius, self.words, self.radius)


def link_nodes(
    nodes: Nodes,
    parents: Parents | None = None,
    *,
    probes: int | None = None,
    across: bool = False,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Parents:
    """Return the root of the component of each code (n,): the smallest number of a code in it.

    Parameters
    ----------
    nodes
        The codes, and what makes two of them near.
    parents
        Components that are known; None: each code is its own.
    probes
        Only the first so many codes are compared with all others. None: all.
    across
        Compare these with the other codes only, not with each other.
    threads
        Number of threads; None: all cores.
    progress
        Called with the share of the tables that are done.

    Examples
    --------
    >>> words = np.array([[0b0000, 0b0001, 0b0011, 0b11110000]], np.uint64)
    >>> link_nodes(Nodes(words, radius=1)).tolist()
    [0, 0, 0, 3]
    """
    parents = np.arange(len(nodes), dtype=np.int32) if parents is None else parents.astype(np.int32)
    probes = len(nodes) if probes is None else probes
    if not probes or len(nodes) < 2:
        return parents
    nodes, tables = _choose(nodes, probes)
    threads = available_threads() if threads is None else threads
    for number, mask in enumerate(tables.masks):
        progress("comparing codes", number / len(tables.masks))
        parents = _link_table(nodes, mask, parents, probes, across, threads)
    return parents


def _choose(nodes: Nodes, probes: int) -> tuple[Nodes, Tables]:
    """Return tables of the first or the second representation, whichever takes less time; the nodes are swapped for it."""
    has_second = nodes.second is not None or nodes.values is not None
    tables = choose_tables(nodes.words, nodes.radius, probes, has_second=has_second)
    if nodes.second is None:
        return nodes, tables
    others = choose_tables(nodes.second, nodes.second_radius, probes, has_second=True)
    return (nodes.swap(), others) if others.seconds < tables.seconds else (nodes, tables)


def _link_table(nodes: Nodes, mask: Words, parents: Parents, probes: int, across: bool, threads: int) -> Parents:
    """Return the components after all pairs of a table's buckets were compared."""
    keys = table_keys(nodes.words, mask)
    order = _bucket_order(keys, parents, probes)
    units = bucket_units(keys[order], order < probes, across)
    pairing = _pairing(nodes, order)
    slices = list(_slices(units, threads))
    free = [parents.copy() for _ in range(min(threads, len(slices)))]

    def link(some: slice) -> None:
        mine = free.pop()
        link_units(pairing, order, units, some.start, some.stop, mine)
        free.append(mine)

    for _ in ordered_map(link, slices, max(1, len(free))):
        pass
    for found in free:
        merge_parents(parents, found)
    return parents


def _bucket_order(keys: Words, parents: Parents, probes: int) -> Int64s:
    """Return the codes in the order of their keys (n,): probes first in each bucket, and components together.

    Tiles of one component are then skipped, which is most of the work where a radius connects a whole class.
    """
    by_component = np.argsort(parents + len(keys) * (np.arange(len(keys)) >= probes), kind="stable")
    return by_component[np.argsort(keys[by_component], kind="stable")]


def _pairing(nodes: Nodes, order: Int64s) -> Pairing:
    """Return what the kernels compare: words in the order of a table, and the second representation code by code."""
    empty = np.zeros((0, len(nodes)), np.uint64)
    second = np.ascontiguousarray((empty if nodes.second is None else nodes.second).T)
    values = np.zeros((len(nodes), 0), np.int8) if nodes.values is None else nodes.values
    words = np.ascontiguousarray(nodes.words[:, order])
    return Pairing(words, nodes.radius, second, nodes.second_radius, values, nodes.squared_radius)


def bucket_units(keys: Words, is_probe: NDArray[np.bool_], across: bool) -> Units:
    """Return the pairs to compare from the sorted keys of a table (n,), in which probes come first in each bucket."""
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    ends = np.r_[starts[1:], len(keys)]
    counts = np.r_[0, np.cumsum(is_probe)]
    probes = counts[ends] - counts[starts]
    useful = (probes > 0) & (ends - starts > (probes if across else 1))
    starts, ends, probes = starts[useful], ends[useful], probes[useful]
    tiles = -(-probes // TILE)
    bucket = np.repeat(np.arange(len(starts)), tiles)
    number = np.arange(len(bucket)) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    first = starts[bucket] + TILE * number
    last = np.minimum(first + TILE, (starts + probes)[bucket])
    return Units(first, last, (starts + probes)[bucket] if across else first, ends[bucket])


def _slices(units: Units, threads: int) -> Iterator[slice]:
    """Yield slices of the units with about as many pairs each."""
    pairs = np.cumsum((units.last - units.first) * (units.end - units.others))
    total = int(pairs[-1]) if len(pairs) else 0
    count = max(1, min(_SLICES_PER_THREAD * threads, total // _MIN_PAIRS))
    stops = np.searchsorted(pairs, total * np.arange(1, count + 1) / count)
    first = 0
    for stop in np.minimum(stops + 1, len(pairs)).tolist():
        if stop > first:
            yield slice(first, stop)
            first = stop
