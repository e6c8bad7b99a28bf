"""Additional words for a code that does not change."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.bit_annealing import AnnealingStage, Signs, anneal_bits
from proxyhash.proxies.geometry import Floats

_MAX_DIMENSIONS = 16  # of a linear code whose words are enumerated
_RANDOM_WORDS = 4096  # additional candidates
_MAX_PAIRS = 1e9  # by the flips of one search: about a second
_MAX_FLIPS = 2_000_000
_STAGES = 20


def complete_code(old: Floats, new: int, random: np.random.Generator) -> Signs:
    """Return `new` words (new, d) of +1 and -1 that are far from the rows of `old` (C, d) and from each other.

    Words are chosen one by one, each the farthest from all before, from the affine hull of `old` (which contains the
    missing words of a linear code), the complements of `old`, and random words. Then single bits are flipped while that
    increases the smallest distance of a new word.
    """
    old = np.ascontiguousarray(old, np.float32)
    strangers = np.where(random.random((max(_RANDOM_WORDS, 4 * new), old.shape[1])) < 0.5, -1, 1).astype(np.float32)
    found = farthest_first(old, np.concatenate((affine_hull(old), -old, strangers)), new)
    reached = _smallest_new_distance(old, found)
    while True:
        better = _flip_bits(old, found, reached + 1, random)
        if (distance := _smallest_new_distance(old, better)) <= reached:
            return found if reached > 0 else _unused_words(old, new)
        found, reached = better, distance


def affine_hull(words: Signs) -> Signs:
    """Return all sums of an odd number of `words` (C, d), or none if there are too many.

    In signs a sum is a product; the rows relative to the first span the linear code, and its basis is found by elimination.
    """
    relative = words * words[0] < 0
    basis: list[NDArray[np.bool_]] = []
    pivots: list[int] = []
    for row in relative:
        rest = row.copy()
        for vector, pivot in zip(basis, pivots, strict=True):
            if rest[pivot]:
                rest ^= vector
        if rest.any():
            basis.append(rest)
            pivots.append(int(rest.argmax()))
        if len(basis) > _MAX_DIMENSIONS:
            return words[:0]
    hull = words[:1]
    for vector in basis:
        hull = np.concatenate((hull, np.where(vector, -hull, hull)))
    return hull


def farthest_first(old: Signs, candidates: Signs, count: int) -> Signs:
    """Return `count` of the `candidates` (M, d), each the farthest from `old` and from those chosen before."""
    nearest = np.full(len(candidates), -np.inf, np.float32)  # the largest product with a chosen word
    for first in range(0, len(old), 256):
        np.maximum(nearest, (candidates @ old[first : first + 256].T).max(axis=1), out=nearest)
    chosen = np.empty(count, np.int64)
    for place in range(count):
        chosen[place] = nearest.argmin()
        np.maximum(nearest, candidates @ candidates[chosen[place]], out=nearest)
    return candidates[chosen]


def _flip_bits(old: Signs, found: Signs, goal: int, random: np.random.Generator) -> Signs:
    rows = np.concatenate((old, found))
    flips = int(min(_MAX_FLIPS, _MAX_PAIRS / len(rows)) / _STAGES)
    stages = [AnnealingStage(temperature, 1.0, flips) for temperature in np.geomspace(3.0, 0.3, _STAGES)]
    return anneal_bits(rows, goal, stages, random, fixed=len(old))[len(old) :]


def _smallest_new_distance(old: Signs, found: Signs) -> int:
    """Return the smallest distance of a found word to an old one or to another found one."""
    bits, rows = old.shape[1], np.concatenate((old, found))
    products = found @ rows.T
    products[np.arange(len(found)), len(old) + np.arange(len(found))] = -bits
    return int((bits - products.max()) / 2)


def _unused_words(old: Signs, count: int) -> Signs:
    """Return the first `count` words in binary order that are not in `old`."""
    bits = old.shape[1]
    taken = {row.tobytes() for row in old > 0}
    free = []
    for number in range(len(old) + count):
        word = (number >> np.arange(bits) & 1).astype(bool)
        if word.tobytes() not in taken:
            free.append(word)
    return np.where(np.array(free[:count]), 1, -1).astype(np.float32)
