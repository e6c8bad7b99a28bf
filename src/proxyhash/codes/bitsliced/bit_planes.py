"""Sums of bits for 256 items at once: a plane holds one bit of each, and logic on planes adds what they stand for.

A plane is (4,) words: bit i of word w belongs to item 64 w + i of a block. The distance of an item to a query is the number
of its 64 bits that differ. As planes, such sums need no instruction but and, or and exclusive or, which processors have for
their widest registers: full adders (three planes in, their sum and their carry out) bring 64 planes down to 7. What three
bits add up to is worked out beforehand for all 8 patterns a query may have there, and serves every query (`sum_threes`); 195
instructions then compare 256 pairs, where registers are as wide. To count the bits of words in a wide register, which few
processors have an instruction for, takes some three times as many.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import PLANE, WORD, add_planes, any_bit, data_pointers, load_plane, store_plane
from proxyhash.utils.jit import jit

TRIPLES = 22  # groups of three bits in a word; the last holds one bit and two zeros
BLOCKS_PER_STACK = 16  # blocks whose bits are counted together


@jit(nogil=True)
def sum_triples(row: Words, first: int, scratch: Words, out: Words) -> None:
    """Write to `out` (22, 8, 2, 4) the sums of three bits that differ from each pattern, as planes of ones and of twos.

    The block begins at item `first` of `row` (N,); where the row ends, zeros follow. `scratch` is (66, 4).
    """
    slice_block(row, first, scratch)
    scratch[64:] = 0
    for three in range(TRIPLES):
        sum_three_bits(scratch[3 * three : 3 * three + 3], out[three])


@intrinsic
def _sum_three_bits(typing_context: Any, bits: Any, out: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = data_pointers(context, builder, signature.args, arguments)
        bits = [load_plane(builder, source, 4 * i) for i in range(3)]
        for pattern in range(8):
            differ = [builder.not_(bit) if pattern >> i & 1 else bit for i, bit in enumerate(bits)]
            for weight, plane in enumerate(add_planes(builder, ((0, bit) for bit in differ))):
                store_plane(builder, plane, target, 8 * pattern + 4 * weight)
        return context.get_dummy_value()

    return types.void(bits, out), generate


sum_three_bits: Any = _sum_three_bits
"""(bits (3, 4), out (8, 2, 4)): for each pattern, add up three planes after turning over those where the pattern has a 1."""


@jit(nogil=True)
def slice_block(row: Words, first: int, out: Words) -> None:
    """Write to `out` (64 or more, 4) the bits of 256 words as planes, from `first` of `row` (N,) on; then zeros."""
    out[:] = 0
    for word in range(4):
        for i in range(min(64, len(row) - first - 64 * word)):
            out[i, word] = row[first + 64 * word + i]
    _transpose(out.reshape(out.size))


@jit(nogil=True)
def join_block(planes: Words, scratch: Words, out: Words) -> None:
    """Write to `out` (256,) the words whose bits are planes (64, 4): what `slice_block` began with. `scratch` is (64, 4)."""
    scratch[:] = planes
    _transpose(scratch.reshape(scratch.size))
    for word in range(4):
        for i in range(64):
            out[64 * word + i] = scratch[i, word]


@jit(nogil=True)
def _transpose(squares: Words) -> None:
    """Transpose four squares of 64 words of 64 bits in place; row i of square w is word 4 i + w, so that loops are long.

    Off-diagonal halves change places, then those of each quarter, and so on down to single bits.
    """
    size, low_half = 32, np.uint64(0xFFFFFFFF)
    while size:
        shift = np.uint64(size)
        for corner in range(0, 256, 8 * size):
            above, below = squares[corner : corner + 4 * size], squares[corner + 4 * size : corner + 8 * size]
            for i in range(4 * size):
                swapped = ((above[i] >> shift) ^ below[i]) & low_half
                above[i] ^= swapped << shift
                below[i] ^= swapped
        size >>= 1
        low_half ^= low_half << np.uint64(size)


@jit(nogil=True)
def pattern_offsets(queries: Words) -> Any:
    """Return (Q, 22) where in `sum_threes` the patterns of each query stand, counted in words."""
    found = np.empty((len(queries), TRIPLES), np.uint16)
    for q in range(len(queries)):
        for three in range(TRIPLES):
            found[q, three] = 64 * three + 8 * ((queries[q, 0] >> np.uint64(3 * three)) & np.uint64(7))
    return found


@intrinsic
def _write_halves(typing_context: Any, threes: Any, places: Any, out: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, where, target = data_pointers(context, builder, signature.args, arguments)
        for row, plane in enumerate(_distances(builder, table, where)[1:]):
            store_plane(builder, plane, target, row * BLOCKS_PER_STACK * 4)
        return context.get_dummy_value()

    return types.void(threes, places, out), generate


write_halves: Any = _write_halves
"""(threes, places (22,), out): write half the distances of a block, rounded down, as six planes a stack's width apart."""


@intrinsic
def _any_below(typing_context: Any, threes: Any, places: Any, limit: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, where, bits = data_pointers(context, builder, signature.args, arguments)
        below = ir.Constant(PLANE, [0] * 4)
        for row, plane in enumerate(_distances(builder, table, where)):  # from the lowest: a higher bit that differs decides
            bit = load_plane(builder, bits, row * 4)
            either = builder.and_(builder.not_(plane), builder.or_(bit, below))
            below = builder.or_(builder.and_(bit, below), either)
        return any_bit(builder, below)

    return types.boolean(threes, places, limit), generate


any_below: Any = _any_below
"""(threes, places (22,), limit (7, 4)): is a distance of the block below the limit, whose bits are planes of 0 or 1?"""


@intrinsic
def _mark_values(typing_context: Any, halves: Any, low: Any, high: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, *targets = data_pointers(context, builder, signature.args, arguments)
        planes = [load_plane(builder, source, row * BLOCKS_PER_STACK * 4) for row in range(6)]
        for target, digits, values in ((targets[0], planes[:3], 8), (targets[1], planes[3:], 5)):
            for value in range(values):
                agree = [digit if value >> i & 1 else builder.not_(digit) for i, digit in enumerate(digits)]
                store_plane(builder, reduce(builder.and_, reversed(agree)), target, value * BLOCKS_PER_STACK * 4)
        return context.get_dummy_value()

    return types.void(halves, low, high), generate


mark_values: Any = _mark_values
"""(halves, low, high): mark where six planes have each remainder by 8, in 8 planes, and each quotient to 4, in 5."""


@intrinsic
def _count_both(typing_context: Any, some: Any, others: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right = data_pointers(context, builder, signature.args, arguments)
        both = (
            builder.and_(load_plane(builder, left, 4 * i), load_plane(builder, right, 4 * i))
            for i in range(BLOCKS_PER_STACK)
        )
        total = WORD(0)
        for weight, plane in enumerate(add_planes(builder, ((0, plane) for plane in both))):
            for word in range(4):
                ones = builder.ctpop(builder.extract_element(plane, ir.IntType(32)(word)))
                total = builder.add(total, builder.shl(ones, WORD(weight)))
        return total

    return types.int64(some, others), generate


count_both: Any = _count_both
"""(some (64,), others (64,)): count the bits set in both of two stacks of 16 planes, added up before they are counted."""


def _distances(builder: Any, threes: Any, places: Any) -> list[Any]:
    """Add up what a query picks from the sums of threes: 7 planes, the ones first."""

    def picked() -> Iterable[tuple[int, Any]]:
        for three in range(TRIPLES):
            place = builder.zext(builder.load(builder.gep(places, [WORD(three)])), WORD)
            sums = builder.gep(threes, [place])
            yield 0, load_plane(builder, sums, 0)
            yield 1, load_plane(builder, sums, 4)

    return add_planes(builder, picked())
