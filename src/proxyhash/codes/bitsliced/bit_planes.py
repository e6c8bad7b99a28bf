"""Hamming distances of 256 items at once, on bit planes.

A plane is (4,) words and holds one bit of each of 256 items: bit i of word w belongs to item 64 w + i of a block. The
distance of an item to a query is the number of its 64 bits that differ. On planes such sums need only and, or and exclusive
or, which processors have for their widest registers: full adders (three planes in, sum and carry out) reduce 64 planes to 7.
The sums of three bits are computed once for all 8 patterns that a query may have there, and serve every query
(`sum_triples`); 195 instructions then compare 256 pairs. Counting the bits of words in a wide register, for which few
processors have an instruction, takes about three times as many.
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

TRIPLES = 22  # groups of three bits in a word; the last has one bit and two zeros
BLOCKS_PER_STACK = 16  # blocks that are counted together


@jit(nogil=True)
def sum_triples(row: Words, first: int, scratch: Words, out: Words) -> None:
    """Write to `out` (22, 8, 2, 4) the sums of three bits that differ from each pattern, as planes of ones and of twos.

    The block begins at item `first` of `row` (N,) and is padded with zeros. `scratch` is (66, 4).
    """
    slice_block(row, first, scratch)
    scratch[64:] = 0
    for triple in range(TRIPLES):
        sum_three_bits(scratch[3 * triple : 3 * triple + 3], out[triple])


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
"""(bits (3, 4), out (8, 2, 4)): for each pattern, add three planes, inverted where the pattern has a 1."""


@jit(nogil=True)
def slice_block(row: Words, first: int, out: Words) -> None:
    """Write to `out` (64 or more, 4) the bit planes of 256 words from `first` of `row` (N,) on, padded with zeros."""
    out[:] = 0
    for word in range(4):
        for i in range(min(64, len(row) - first - 64 * word)):
            out[i, word] = row[first + 64 * word + i]
    _transpose(out.reshape(out.size))


@jit(nogil=True)
def join_block(planes: Words, scratch: Words, out: Words) -> None:
    """Write to `out` (256,) the words with bit planes (64, 4), the inverse of `slice_block`. `scratch` is (64, 4)."""
    scratch[:] = planes
    _transpose(scratch.reshape(scratch.size))
    for word in range(4):
        for i in range(64):
            out[64 * word + i] = scratch[i, word]


@jit(nogil=True)
def _transpose(squares: Words) -> None:
    """Transpose four squares of 64 words of 64 bits in offset; row i of square w is word 4 i + w, so that loops are long.

    Off-diagonal halves are swapped, then those of each quarter, and so on down to single bits.
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
    """Return the offsets (Q, 22), in words, of the patterns of each query in the output of `sum_triples`."""
    found = np.empty((len(queries), TRIPLES), np.uint16)
    for q in range(len(queries)):
        for triple in range(TRIPLES):
            found[q, triple] = 64 * triple + 8 * ((queries[q, 0] >> np.uint64(3 * triple)) & np.uint64(7))
    return found


@intrinsic
def _write_halves(typing_context: Any, triples: Any, offsets: Any, out: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, positions, target = data_pointers(context, builder, signature.args, arguments)
        for row, plane in enumerate(_distances(builder, table, positions)[1:]):
            store_plane(builder, plane, target, row * BLOCKS_PER_STACK * 4)
        return context.get_dummy_value()

    return types.void(triples, offsets, out), generate


write_halves: Any = _write_halves
"""(triples, offsets (22,), out): write distances // 2 of a block as six planes with a stride of one stack."""


@intrinsic
def _any_below(typing_context: Any, triples: Any, offsets: Any, limit: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, positions, bits = data_pointers(context, builder, signature.args, arguments)
        below = ir.Constant(PLANE, [0] * 4)
        for row, plane in enumerate(_distances(builder, table, positions)):  # from the lowest bit: a higher one decides
            bit = load_plane(builder, bits, row * 4)
            either = builder.and_(builder.not_(plane), builder.or_(bit, below))
            below = builder.or_(builder.and_(bit, below), either)
        return any_bit(builder, below)

    return types.boolean(triples, offsets, limit), generate


any_below: Any = _any_below
"""(triples, offsets (22,), limit (7, 4)): whether a distance of the block is below the limit, given as 7 planes."""


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
"""(halves, low, high): mark the items with each remainder modulo 8 (8 planes) and each quotient 0 to 4 (5 planes)."""


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
"""(some (64,), others (64,)): count the bits set in both of two stacks of 16 planes, which are added first."""


def _distances(builder: Any, triples: Any, offsets: Any) -> list[Any]:
    """Add the sums of triples that a query selects: 7 planes, the lowest first."""

    def picked() -> Iterable[tuple[int, Any]]:
        for triple in range(TRIPLES):
            offset = builder.zext(builder.load(builder.gep(offsets, [WORD(triple)])), WORD)
            sums = builder.gep(triples, [offset])
            yield 0, load_plane(builder, sums, 0)
            yield 1, load_plane(builder, sums, 4)

    return add_planes(builder, picked())
