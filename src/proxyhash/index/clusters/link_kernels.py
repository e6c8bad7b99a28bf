"""Compiled loops that unite codes near each other: which of them are linked, not by which pairs."""

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import CHUNK, chunk_distances
from proxyhash.index.clusters.candidates import (
    Near,
    Visitors,
    apart,
    find_near,
    in_reach,
    lowest,
    may_hold,
    nothing_near,
    visitors,
    welcome,
)
from proxyhash.index.clusters.layout import Groups
from proxyhash.index.clusters.layout_kernels import read_block
from proxyhash.index.item_ids import Longs, Whole
from proxyhash.utils.jit import jit


@jit(nogil=True, skip_refcounts=True)
def _root(parent: Longs, item: Whole) -> Whole:
    """Return what stands for the component of an item, and shorten the way there."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@jit(nogil=True)
def link_plain(words: Words, radius: Whole, parent: Longs, items: Whole, until: Whole) -> None:
    """Unite the codes `items` to `until` of (W, N) with every later one within `radius`."""
    chunk = np.empty(CHUNK, np.uint64)
    for item in range(items, until):
        query = words[:, item].copy()
        for first in range(item + 1, words.shape[1], CHUNK):
            last = min(first + CHUNK, words.shape[1])
            chunk_distances(query, words, first, last, chunk)
            for other in range(first, last):
                if chunk[other - first] <= radius:
                    parent[_root(parent, other)] = _root(parent, item)


@jit(nogil=True)
def link_grouped(groups: Groups, radius: Whole, parent: Longs, blocks: Whole, until: Whole) -> None:
    """Unite the codes of `blocks` to `until` with every later one within `radius`; `parent` (256 B,) goes by places."""
    parts = groups.centres.shape[1]
    square, words = np.empty((64, 4), np.uint64), np.empty((parts, BLOCK), np.uint64)
    guests, near = visitors(BLOCK, parts), nothing_near(parts)
    for block in range(blocks, until):
        read_block(groups, np.searchsorted(groups.starts, block, side="right") - 1, block, square, words)
        queries = words.T.copy()
        for group in range(len(groups.centres)):
            if groups.starts[group + 1] > block:
                coming = _welcome_codes(groups, group, block, queries, radius, guests)
                for other in range(max(block, groups.starts[group]), groups.starts[group + 1]):
                    _link_blocks(groups, block, other, guests, coming, radius, parent, near)


@jit(nogil=True, skip_refcounts=True)
def _welcome_codes(groups: Groups, group: Whole, block: Whole, queries: Words, radius: Whole, guests: Visitors) -> Whole:
    """Let the codes of a block (256, W) that can have one within `radius` in a group visit it; return how many these are."""
    coming = 0
    for lane in range(BLOCK):
        empty = groups.planes[block, -1, lane // 64] >> np.uint64(lane % 64) & np.uint64(1)
        if not empty and in_reach(groups.spans, group, apart(queries, lane, groups.centres, group), radius):
            welcome(guests, coming, queries, lane, groups, group)
            coming += 1
    return coming


@jit(nogil=True, skip_refcounts=True)
def _link_blocks(
    groups: Groups, block: Whole, other: Whole, guests: Visitors, coming: Whole, radius: Whole, parent: Longs, near: Near
) -> None:
    """Unite visitors, which are codes of a block, with all codes of another one within `radius`."""
    for visitor in range(coming):
        reach = in_reach(groups.shells, other, guests.centre[visitor], radius)
        if reach and may_hold(groups, other, guests, visitor, radius):
            find_near(groups, other, guests, visitor, radius, near)
            for word in range(4):
                left = near.marks[word]
                while left:
                    place = other * BLOCK + 64 * word + lowest(left)
                    left &= left - np.uint64(1)
                    parent[_root(parent, place)] = _root(parent, block * BLOCK + guests.query[visitor])
