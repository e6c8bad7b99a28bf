"""Hash tables that hold every pair of near codes in a common bucket, and the choice between them.

Let the bits of codes be dealt to b substrings. Two codes within a radius r differ in at most r of them, so they are equal in
at least b - r. A table for each choice of b - r substrings, keyed by their bits, has the pair in one bucket of one table.
With b = r + 1 there are r + 1 tables of short keys; a larger b gives more tables of longer keys, with smaller buckets.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.utils.random import generator

_SAMPLE = 16_384  # codes that bucket sizes are estimated from
_NEAR_SAMPLE = 1024  # codes that the share of near pairs is estimated from, all pairs
_MAX_TABLES = 128
_TABLES_TO_ESTIMATE = 4  # bits are dealt so that all tables of a choice are alike
_SECONDS_PER_CODE = 1.5e-7  # to sort and gather the codes of a table, measured with a million codes
_SECONDS_PER_PAIR = 2.5e-10  # and word, to compare codes of a bucket
_SECONDS_PER_NEAR_PAIR = 1e-8  # to compare its second representations, which lie anywhere in memory
_MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd number with irregular bits: 2^64 divided by the golden ratio


@dataclass(frozen=True, eq=False)
class Tables:
    """T tables for codes of V words."""

    masks: Words
    """(T, V): the bits of the key of each table"""
    seconds: float
    """estimated time to compare the pairs of all buckets on one core"""


def choose_tables(words: Words, radius: int, probes: int, *, has_second: bool = False) -> Tables:
    """Return the tables for codes (V, n) that are estimated to take the least time.

    Parameters
    ----------
    words
        Codes (V, n).
    radius
        Largest distance of near codes.
    probes
        Number of codes that are compared with all n.
    has_second
        Whether near pairs are compared by a second representation too.
    """
    size, count = words.shape
    rows = np.sort(generator(0, "tables").permutation(count)[:_SAMPLE])
    sample = np.ascontiguousarray(words[:, rows])
    order = _bits_by_balance(sample)
    pairs = probes * (count - probes) + probes * (probes - 1) / 2
    near = _share_near(sample, radius) * pairs * _SECONDS_PER_NEAR_PAIR if has_second else 0.0
    options = [_all_pairs(size)]
    for parts in range(radius + 1, min(radius + 4, 64 * size + 1)):
        if comb(parts, radius) <= _MAX_TABLES or parts == radius + 1:
            options.append(_masks(order, parts, parts - radius, size))
    estimates = []
    for masks in options:
        shares = [_share_of_pairs(table_keys(sample, mask)) for mask in masks[:_TABLES_TO_ESTIMATE]]
        compared = float(np.mean(shares)) * pairs * size * _SECONDS_PER_PAIR
        estimates.append(len(masks) * (compared + count * _SECONDS_PER_CODE) + near)
    best = int(np.argmin(estimates))
    return Tables(options[best], estimates[best])


def table_keys(words: Words, mask: Words) -> Words:
    """Return keys (n,) that are equal if codes (V, n) are equal in the bits of a mask (V,); others are rarely equal."""
    if len(words) == 1:
        only: Words = words[0] & mask[0]
        return only
    keys = np.zeros(words.shape[1], np.uint64)
    for word, bits in zip(words, mask, strict=True):
        if bits:
            keys ^= word & bits
            keys *= _MIX
            keys ^= keys >> np.uint64(32)
    return keys


def _all_pairs(size: int) -> Words:
    """Return the mask of one table with one bucket."""
    return np.zeros((1, size), np.uint64)


def _masks(order: NDArray[np.int64], parts: int, chosen: int, size: int) -> Words:
    """Return a mask for every choice of so many of `parts` substrings."""
    substrings = np.zeros((parts, size), np.uint64)
    for number, bit in enumerate(order):
        substrings[number % parts, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return np.stack([np.bitwise_or.reduce(substrings[list(some)]) for some in combinations(range(parts), chosen)])


def _bits_by_balance(sample: Words) -> NDArray[np.int64]:
    """Return the bits in the order in which they are dealt: those that are 0 as often as 1 first."""
    on = np.unpackbits(np.ascontiguousarray(sample.T, "<u8").view(np.uint8), axis=1, bitorder="little")
    return np.argsort(np.abs(on.mean(0) - 0.5), kind="stable")


def _share_of_pairs(keys: Words) -> float:
    """Return the share of pairs with equal keys."""
    if len(keys) < 2:
        return 1.0
    counts = np.unique(keys, return_counts=True)[1].astype(float)
    return float((counts * (counts - 1)).sum()) / (len(keys) * (len(keys) - 1))


def _share_near(sample: Words, radius: int) -> float:
    """Return the share of pairs within the radius."""
    some = sample[:, :: max(1, sample.shape[1] // _NEAR_SAMPLE)]
    distances = np.zeros((some.shape[1], some.shape[1]), np.int16)
    for word in some:
        distances += np.bitwise_count(word[:, None] ^ word)
    return float((distances <= radius).mean())
