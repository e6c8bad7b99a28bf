"""Codes of the largest minimal distance that can be constructed for C classes and d bits."""

from collections.abc import Iterator
from functools import cache
from itertools import chain, islice

import numpy as np

from proxyhash.proxies.bit_annealing import AnnealingStage, anneal_bits
from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.constructions.bch import trace_code_columns
from proxyhash.proxies.constructions.codewords import (
    balance_bits,
    bit_imbalance,
    choose_balanced_rows,
    minimal_distance,
    shuffle_code,
)
from proxyhash.proxies.constructions.column_search import initial_columns, search_columns
from proxyhash.proxies.constructions.hadamard import Signs, biorthogonal_codes, plotkin_codes
from proxyhash.proxies.constructions.linear import Columns, encode_messages, linear_distance
from proxyhash.proxies.constructions.orbit_search import orbit_columns
from proxyhash.utils.random import generator

_MAX_SHORT_SEARCH_CLASSES = 128  # classes
_MAX_SEARCH_DIMENSIONS = 12  # with more dimensions, a search from scratch is far worse than trace codes
_MAX_WORDS = 1 << 16
_MAX_BALANCED_CLASSES = 64  # with more classes, a good choice of words is balanced enough
_ACCEPTED_IMBALANCE = 0.35  # largest |mean| of a bit at which a code of the largest distance ends the search
_MAX_ANNEALED_CLASSES = 64  # with more, random flips do not improve on algebraic codes
_FLIPS = 200_000
_STAGES = 20

Blocks = list[Signs]


def best_code(classes: int, bits: int, seed: int = 0) -> Signs:
    """Return C words (C, d) of +1 and -1, C <= 2^d, of the largest minimal distance, without constant bits.

    Constructions and distance do not depend on the seed. The seed chooses the words of codes with more than C, their order,
    and the order and signs of the bits. The minimal distance is measured over all pairs.
    """
    random = generator(seed, "code")
    most = largest_min_distance(classes, bits)
    best, merit = np.empty((0, bits), np.int8), (0, -2.0)
    for blocks in _candidates(classes, bits):
        code = np.concatenate([block[choose_balanced_rows(block, classes, random)] for block in blocks], axis=1)
        distance = minimal_distance(code)
        code = balance_bits(code, distance) if classes <= _MAX_BALANCED_CLASSES else code
        found = distance, -max(_ACCEPTED_IMBALANCE, bit_imbalance(code))
        if found > merit:
            best, merit = code, found
        if merit[0] >= most and merit[1] >= -_ACCEPTED_IMBALANCE:
            break
    return shuffle_code(anneal_code(best, merit[0], most), random)


def _candidates(classes: int, bits: int) -> Iterator[Blocks]:
    """Yield codes of at least C words, each as blocks of bits whose words may be chosen independently.

    A short search for a linear code comes before Hadamard codes, because a linear code can be extended later.
    """
    yield from islice(plotkin_codes(classes, bits), 1)
    hadamard = ([code] for code in islice(biorthogonal_codes(classes, bits), 1))
    linear = _linear_candidates(classes, bits)
    yield from chain(linear, hadamard) if classes <= _MAX_SHORT_SEARCH_CLASSES else chain(hadamard, linear)


def _linear_candidates(classes: int, bits: int) -> Iterator[Blocks]:
    k = (classes - 1).bit_length()
    pool = np.arange(1 << k if 1 << k <= _MAX_WORDS else classes)
    yield [encode_messages(best_columns(k, bits), pool)]


@cache
def best_columns(k: int, bits: int) -> Columns:
    """Return the columns (d,) of the best [d, k] code found, d >= k; a code that meets the upper bound ends the search."""
    most = largest_min_distance(1 << k, bits)
    best = initial_columns(k, bits)
    for columns in _column_candidates(k, bits, most):
        best = max(best, columns, key=lambda found: linear_distance(found, k))
        if linear_distance(best, k) >= most:
            break
    return best


def _column_candidates(k: int, bits: int, most: int) -> Iterator[Columns]:
    """Yield the columns of [d, k] codes: from a trace code, from scratch, with a symmetry."""
    many = 1 << k > _MAX_SHORT_SEARCH_CLASSES
    if many and (started := trace_code_columns(k, bits, most)) is not None:
        yield search_columns(k, bits, most, started)
    if k <= _MAX_SEARCH_DIMENSIONS:
        yield search_columns(k, bits, most)
    if many and k % 2 == 0 and k <= _MAX_SEARCH_DIMENSIONS:
        yield orbit_columns(k, bits, most)


def anneal_code(code: Signs, reached: int, most: int) -> Signs:
    """Return words (C, d) of a larger minimal distance than `reached`, that of `code`, or `code` itself.

    Single bits are flipped from a random start until the minimal distance is one larger, as long as that succeeds.
    """
    classes, bits = code.shape
    while classes <= _MAX_ANNEALED_CLASSES and reached < most:
        random = generator(0, "annealed code", classes, bits, reached)
        start = np.where(random.random((classes, bits)) < 0.5, -1.0, 1.0)
        stages = [AnnealingStage(temperature, 1.0, _FLIPS // _STAGES) for temperature in np.geomspace(3.0, 0.3, _STAGES)]
        found = anneal_bits(start, reached + 1, stages, random).astype(np.int8)
        distance = minimal_distance(found)
        if distance <= reached:
            break
        code, reached = balance_bits(found, distance), distance
    return code
