"""Hamming distances of all items of a block at once, on bit planes.

The distance of an item to a query is the number of bits that differ. On planes such sums need only and, or and exclusive or,
which processors have for their widest registers: full adders (three planes in, sum and carry out) reduce 64 planes to 7.

For many queries, the sums of three bits are computed once for all 8 patterns that a query may have there, and serve every
query (`sum_three_bits`). Codes of up to 66 bits need one table of 22 such triples. Longer codes are added up table by table.

Sizes that must be known when a function is compiled are given by the lengths of tuples, `triples` and `levels`: the number
of triples of a table, and of planes of a distance.
"""
# ruff: noqa: ARG001 -- numba passes the types of all arguments to an intrinsic, which needs few of them

from collections.abc import Iterable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from proxyhash.codes.bitsliced.llvm_ops import (
    WIDE_PLANE,
    WIDE_WORDS,
    WORD,
    add_planes,
    any_bit,
    broadcast,
    load_plane,
    mark_below,
    prefetch,
    row_pointer,
    store_plane,
)

PATTERN_WORDS = 2 * WIDE_WORDS  # of a table: a plane of ones and a plane of twos
TRIPLE_WORDS = 8 * PATTERN_WORDS
BLOCKS_PER_STACK = 16  # blocks that are counted together
PREFETCH_WORDS = 1024  # 8 KiB ahead, where hardware prefetching falls behind a processor that computes between its reads


@intrinsic
def _sum_three_bits(typing_context: Any, bits: Any, triple: Any, table: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits, triple, table = arguments
        source = row_pointer(context, builder, signature.args[0], bits, builder.mul(triple, WORD(3)))
        target = row_pointer(context, builder, signature.args[2], table, triple)
        planes = [load_plane(builder, source, WIDE_WORDS * i, WIDE_PLANE) for i in range(3)]
        for pattern in range(8):
            differ = [builder.not_(plane) if pattern >> i & 1 else plane for i, plane in enumerate(planes)]
            for weight, plane in enumerate(add_planes(builder, ((0, plane) for plane in differ))):
                store_plane(builder, plane, target, PATTERN_WORDS * pattern + WIDE_WORDS * weight)
        return context.get_dummy_value()

    return types.void(bits, types.int64, table), generate


sum_three_bits: Any = _sum_three_bits
"""(bits (3 T, L), triple, table (T, 8, 2, L)): for each pattern, add three planes, inverted where the pattern has a 1."""


def _selected(builder: Any, table: Any, offsets: Any, triples: int) -> Iterable[tuple[int, Any]]:
    """Yield the planes of a table that a query selects, with their weights."""
    for triple in range(triples):
        offset = builder.zext(builder.load(builder.gep(offsets, [WORD(triple)])), WORD)
        sums = builder.gep(table, [offset])
        yield 0, load_plane(builder, sums, 0, WIDE_PLANE)
        yield 1, load_plane(builder, sums, WIDE_WORDS, WIDE_PLANE)


def _limit(builder: Any, bits: Any, levels: int) -> list[Any]:
    """Return the bits of a limit as planes; `bits` points to a word of zeros or ones for each."""
    words = (builder.load(builder.gep(bits, [WORD(level)])) for level in range(levels))
    return [broadcast(builder, word, WIDE_PLANE) for word in words]


def _pad(planes: list[Any], levels: int) -> list[Any]:
    zero = ir.Constant(WIDE_PLANE, [0] * WIDE_WORDS)
    return [*planes, *[zero] * (levels - len(planes))][:levels]


@intrinsic
def _any_below(
    typing_context: Any,
    table: Any,
    offsets: Any,
    q: Any,
    limits: Any,
    valid: Any,
    block: Any,
    triples: Any,
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, offsets, q, limits, valid, block, _ = arguments
        kinds = signature.args
        sums = add_planes(
            builder,
            _selected(
                builder,
                row_pointer(context, builder, kinds[0], table),
                row_pointer(context, builder, kinds[1], offsets, q),
                kinds[6].count,
            ),
        )
        limit = _limit(builder, row_pointer(context, builder, kinds[3], limits, q), len(sums))
        held = load_plane(builder, row_pointer(context, builder, kinds[4], valid, block), 0, WIDE_PLANE)
        return any_bit(builder, builder.and_(held, mark_below(builder, sums, limit)))

    return types.boolean(table, offsets, types.int64, limits, valid, types.int64, triples), generate


any_below: Any = _any_below
"""(table, offsets (Q, T), q, limits (Q, levels), valid (B, L), block, triples): whether a valid item is below q's limit."""


@intrinsic
def _any_near(typing_context: Any, planes: Any, block: Any, bits: Any, q: Any, limits: Any, valid: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        planes, block, bits, q, limits, valid, _ = arguments
        kinds = signature.args
        source = row_pointer(context, builder, kinds[0], planes, block)
        query = row_pointer(context, builder, kinds[2], bits, q)
        sums = add_planes(builder, _differences(builder, source, query, kinds[6].count))
        limit = _limit(builder, row_pointer(context, builder, kinds[4], limits, q), len(sums))
        held = load_plane(builder, row_pointer(context, builder, kinds[5], valid, block), 0, WIDE_PLANE)
        return any_bit(builder, builder.and_(held, mark_below(builder, sums, limit)))

    return types.boolean(planes, types.int64, bits, types.int64, limits, valid, count), generate


any_near: Any = _any_near
"""(planes (B, P, L), block, bits (Q, P), q, limits (Q, levels), valid (B, L), count): whether an item is below q's limit.

Only valid items count. The distance is that of the first `count` bits, a tuple of that length. No sum leaves the registers.
"""


def _adding(has_sums: bool) -> Any:
    """Return an intrinsic that adds the sums of a table to those of earlier tables, or starts with them."""

    @intrinsic
    def add(
        typing_context: Any,
        table: Any,
        offsets: Any,
        q: Any,
        first: Any,
        sums: Any,
        row: Any,
        triples: Any,
        levels: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            table, offsets, q, first, sums, row, _, _ = arguments
            kinds = signature.args
            count = kinds[7].count
            target = row_pointer(context, builder, kinds[4], sums, row)
            selected = _selected(
                builder,
                row_pointer(context, builder, kinds[0], table),
                row_pointer(context, builder, kinds[1], offsets, q, first),
                kinds[6].count,
            )
            before = [(level, load_plane(builder, target, WIDE_WORDS * level, WIDE_PLANE)) for level in range(count)]
            total = add_planes(builder, [*(before if has_sums else []), *selected])
            for level, plane in enumerate(_pad(total, count)):
                store_plane(builder, plane, target, WIDE_WORDS * level)
            return context.get_dummy_value()

        signature = types.void(table, offsets, types.int64, types.int64, sums, types.int64, triples, levels)
        return signature, generate

    return add


start_sums: Any = _adding(has_sums=False)
"""(table, offsets (Q, T), q, first, sums (R, levels, L), row, triples, levels): write distances by one table to a row."""

add_sums: Any = _adding(has_sums=True)
"""The same, added to the distances that the row has."""


def _adding_differences(has_sums: bool) -> Any:
    """Return an intrinsic that adds the differences of some bits to those of earlier bits, or starts with them."""

    @intrinsic
    def add(
        typing_context: Any,
        planes: Any,
        block: Any,
        first: Any,
        bits: Any,
        q: Any,
        sums: Any,
        row: Any,
        count: Any,
        levels: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            planes, block, first, bits, q, sums, row, _, _ = arguments
            kinds = signature.args
            source = row_pointer(context, builder, kinds[0], planes, block, first)
            query = row_pointer(context, builder, kinds[3], bits, q, first)
            target = row_pointer(context, builder, kinds[5], sums, row)
            levels = kinds[8].count
            before = [(level, load_plane(builder, target, WIDE_WORDS * level, WIDE_PLANE)) for level in range(levels)]
            differ = _differences(builder, source, query, kinds[7].count)
            total = add_planes(builder, [*(before if has_sums else []), *differ])
            for level, plane in enumerate(_pad(total, levels)):
                store_plane(builder, plane, target, WIDE_WORDS * level)
            return context.get_dummy_value()

        kinds = (planes, types.int64, types.int64, bits, types.int64, sums, types.int64, count, levels)
        return types.void(*kinds), generate

    return add


def _differences(builder: Any, planes: Any, bits: Any, count: int) -> Iterable[tuple[int, Any]]:
    """Yield planes that mark the items whose bit differs from a query's."""
    for i in range(count):
        bit = broadcast(builder, builder.load(builder.gep(bits, [WORD(i)])), WIDE_PLANE)
        prefetch(builder, planes, WIDE_WORDS * i + PREFETCH_WORDS)
        yield 0, builder.xor(load_plane(builder, planes, WIDE_WORDS * i, WIDE_PLANE), bit)


start_differences: Any = _adding_differences(has_sums=False)
"""(planes (B, P, L), block, first, bits (Q, P), q, sums (R, levels, L), row, count, levels): write the differences of bits.

These are `count` planes from `first` on, a tuple of that length. Each bit of the query is a word of zeros or of ones.
"""

add_differences: Any = _adding_differences(has_sums=True)
"""The same, added to the distances that the row has."""


@intrinsic
def _select_below(
    typing_context: Any,
    sums: Any,
    row: Any,
    limits: Any,
    q: Any,
    valid: Any,
    block: Any,
    out: Any,
    to: Any,
    levels: Any,
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, row, limits, q, valid, block, out, to, _ = arguments
        kinds = signature.args
        count = kinds[8].count
        source = row_pointer(context, builder, kinds[0], sums, row)
        planes = [load_plane(builder, source, WIDE_WORDS * level, WIDE_PLANE) for level in range(count)]
        limit = _limit(builder, row_pointer(context, builder, kinds[2], limits, q), count)
        held = load_plane(builder, row_pointer(context, builder, kinds[4], valid, block), 0, WIDE_PLANE)
        below = builder.and_(held, mark_below(builder, planes, limit))
        store_plane(builder, below, row_pointer(context, builder, kinds[6], out, to), 0)
        return any_bit(builder, below)

    kinds = (sums, types.int64, limits, types.int64, valid, types.int64, out, types.int64, levels)
    return types.boolean(*kinds), generate


select_below: Any = _select_below
"""(sums (R, levels, L), row, limits (Q, levels), q, valid (B, L), block, out (R, L), to, levels): mark items below a limit.

The limit is that of query q, and the mark is written to row `to`. Only valid items are marked. The result tells whether
there is one.
"""


@intrinsic
def _mark_remainders(typing_context: Any, sums: Any, row: Any, valid: Any, block: Any, out: Any, to: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, row, valid, block, out, to = arguments
        kinds = signature.args
        source = row_pointer(context, builder, kinds[0], sums, row)
        digits = [load_plane(builder, source, WIDE_WORDS * level, WIDE_PLANE) for level in range(1, 4)]
        held = load_plane(builder, row_pointer(context, builder, kinds[2], valid, block), 0, WIDE_PLANE)
        for value in range(8):
            target = row_pointer(context, builder, kinds[4], out, WORD(value), to)
            agree = [digit if value >> i & 1 else builder.not_(digit) for i, digit in enumerate(digits)]
            store_plane(builder, reduce(builder.and_, reversed(agree), held), target, 0)
        return context.get_dummy_value()

    return types.void(sums, types.int64, valid, types.int64, out, types.int64), generate


mark_remainders: Any = _mark_remainders
"""(sums (R, levels, L), row, valid (B, L), block, out (8, 16, L), to): mark valid items by distance // 2 modulo 8."""


@intrinsic
def _mark_quotient(typing_context: Any, sums: Any, first: Any, quotient: Any, out: Any, levels: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, first, quotient, out, _ = arguments
        kinds = signature.args
        source = row_pointer(context, builder, kinds[0], sums, first)
        target = row_pointer(context, builder, kinds[3], out)
        count, occurs = kinds[4].count, ir.Constant(WIDE_PLANE, [0] * WIDE_WORDS)
        inverted = []
        for level in range(4, count):
            bit = builder.and_(builder.lshr(quotient, WORD(level - 4)), WORD(1))
            inverted.append(broadcast(builder, builder.sub(bit, WORD(1)), WIDE_PLANE))
        for block in range(BLOCKS_PER_STACK):
            begin = count * block
            digits = (load_plane(builder, source, WIDE_WORDS * (begin + level), WIDE_PLANE) for level in range(4, count))
            agree = (builder.xor(digit, mask) for digit, mask in zip(digits, inverted, strict=True))
            mark = reduce(builder.and_, agree)
            store_plane(builder, mark, target, WIDE_WORDS * block)
            occurs = builder.or_(occurs, mark)
        return any_bit(builder, occurs)

    return types.boolean(sums, types.int64, types.int64, out, levels), generate


mark_quotient: Any = _mark_quotient
"""(sums (R, levels, L), first, quotient, out (16, L), levels): mark the items whose distance // 16 is `quotient`.

These are 16 rows from `first` on, one for each block of a stack. The result tells whether there is such an item.
"""


@intrinsic
def _count_both(typing_context: Any, some: Any, others: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        some, others, value = arguments
        left = row_pointer(context, builder, signature.args[0], some)
        right = row_pointer(context, builder, signature.args[1], others, value)
        both = (
            builder.and_(
                load_plane(builder, left, WIDE_WORDS * i, WIDE_PLANE), load_plane(builder, right, WIDE_WORDS * i, WIDE_PLANE)
            )
            for i in range(BLOCKS_PER_STACK)
        )
        total = WORD(0)
        for weight, plane in enumerate(add_planes(builder, ((0, plane) for plane in both))):
            for word in range(WIDE_WORDS):
                ones = builder.ctpop(builder.extract_element(plane, ir.IntType(32)(word)))
                total = builder.add(total, builder.shl(ones, WORD(weight)))
        return total

    return types.int64(some, others, types.int64), generate


count_both: Any = _count_both
"""(some (16, L), others (8, 16, L), value): count the bits set in both of two stacks of planes, which are added first."""
