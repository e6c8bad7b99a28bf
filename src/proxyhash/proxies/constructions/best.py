"""The largest minimal distance that can be constructed for C classes and d bits."""

from collections.abc import Iterator
from functools import cache
from itertools import chain, islice

import numpy as np

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.constructions.annealed import annealed_code
from proxyhash.proxies.constructions.bch import trace_code_columns
from proxyhash.proxies.constructions.choice import balanced_rows, evened, lopsidedness, turned
from proxyhash.proxies.constructions.column_search import searched_columns, spread_columns
from proxyhash.proxies.constructions.distance import minimal_distance
from proxyhash.proxies.constructions.hadamard import Signs
from proxyhash.proxies.constructions.linear import Columns, distance, words
from proxyhash.proxies.constructions.orbit_search import orbit_columns
from proxyhash.proxies.constructions.plotkin import biorthogonal_codes, plotkin_codes
from proxyhash.utils.random import generator

_SHORT_SEARCH_UP_TO = 128  # classes
_SEARCH_UP_TO = 12  # dimensions: beyond, a search from scratch does not come near the trace codes
_WORDS_TO_CHOOSE_FROM = 1 << 16
_EVEN_OUT_UP_TO = 64  # classes; with more, a good choice of words is balanced enough
_EVEN_ENOUGH = 0.35  # the largest |mean| of a bit with which a code of the largest distance is taken at once

Blocks = list[Signs]


def best_code(classes: int, bits: int, seed: int = 0) -> Signs:
    """Return C words (C, d) of +1 and -1, C <= 2^d, as far apart as any construction here gets, no bit constant.

    The constructions do not depend on the seed, and neither does the distance; the seed chooses the words where there are
    more than C, their order, and the order and sign of the bits. The distance that counts is measured over all pairs.
    """
    random = generator(seed, "code")
    most = largest_min_distance(classes, bits)
    best, merit = np.empty((0, bits), np.int8), (0, -2.0)
    for blocks in _candidates(classes, bits):
        code = np.concatenate([block[balanced_rows(block, classes, random)] for block in blocks], axis=1)
        apart = minimal_distance(code)
        code = evened(code, apart) if classes <= _EVEN_OUT_UP_TO else code
        found = apart, -max(_EVEN_ENOUGH, lopsidedness(code))
        if found > merit:
            best, merit = code, found
        if merit[0] >= most and merit[1] >= -_EVEN_ENOUGH:
            break
    return turned(annealed_code(best, merit[0], most), random)


def _candidates(classes: int, bits: int) -> Iterator[Blocks]:
    """Yield codes of at least C words, each as blocks of bits whose words may be chosen independently.

    Where the search for a linear code is short it comes before the Hadamard codes: a linear code can be extended later.
    """
    yield from islice(plotkin_codes(classes, bits), 1)
    hadamard = ([code] for code in islice(biorthogonal_codes(classes, bits), 1))
    linear = _linear_candidates(classes, bits)
    yield from chain(linear, hadamard) if classes <= _SHORT_SEARCH_UP_TO else chain(hadamard, linear)


def _linear_candidates(classes: int, bits: int) -> Iterator[Blocks]:
    k = (classes - 1).bit_length()
    pool = np.arange(1 << k if 1 << k <= _WORDS_TO_CHOOSE_FROM else classes)
    yield [words(best_columns(k, bits), pool)]


@cache
def best_columns(k: int, bits: int) -> Columns:
    """Return the columns (d,) of the best [d, k] code found, d >= k; a code that meets the upper bound ends the search."""
    most = largest_min_distance(1 << k, bits)
    best = spread_columns(k, bits)
    for columns in _searches(k, bits, most):
        best = max(best, columns, key=lambda found: distance(found, k))
        if distance(best, k) >= most:
            break
    return best


def _searches(k: int, bits: int, most: int) -> Iterator[Columns]:
    """Yield the columns of [d, k] codes: from a trace code, from scratch, with a symmetry."""
    many = 1 << k > _SHORT_SEARCH_UP_TO
    if many and (started := trace_code_columns(k, bits, most)) is not None:
        yield searched_columns(k, bits, most, started)
    if k <= _SEARCH_UP_TO:
        yield searched_columns(k, bits, most)
    if many and k % 2 == 0 and k <= _SEARCH_UP_TO:
        yield orbit_columns(k, bits, most)
