"""Vectorized counts over bit planes, 256 codes at a time; `layout` says what the planes hold."""
# ruff: noqa: ARG001 -- numba passes the types of all arguments to an intrinsic, which needs few of them

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from proxyhash.codes.bitsliced.llvm_ops import (
    PLANE,
    WORD,
    add_planes,
    any_bit,
    broadcast,
    data_pointers,
    load_plane,
    row_pointer,
    store_plane,
)

cgutils: Any = untyped_cgutils

PER_ROUND = 8  # planes that are added up before the sum is carried on
DISTANCE_PLANES = 13  # 4096 is the largest distance there is


def _reaching(levels: int) -> Any:
    """Return an intrinsic that tests whether a code has at least so many of some bits, 2^levels or fewer.

    The count of every code starts at 2^levels - least, so that a code with `least` bits overflows.
    """

    @intrinsic
    def reaches(
        typing_context: Any,
        blocks: Any,
        hidden: Any,
        block: Any,
        lists: Any,
        row: Any,
        rounds: Any,
        least: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            blocks, hidden, block, lists, row, rounds, least = arguments
            words = row_pointer(context, builder, signature.args[0], blocks, block)
            offsets = row_pointer(context, builder, signature.args[3], lists, row)
            begin = builder.sub(WORD(2**levels), least)
            counts = [cgutils.alloca_once(builder, PLANE) for _ in range(levels + 1)]
            for level, count in enumerate(counts[:-1]):
                bit = builder.and_(builder.lshr(begin, WORD(level)), WORD(1))
                builder.store(broadcast(builder, builder.neg(bit)), count)
            builder.store(ir.Constant(PLANE, [0] * 4), counts[-1])
            with cgutils.for_range(builder, rounds) as loop:
                first = builder.mul(loop.index, WORD(PER_ROUND))
                _count_round(builder, words, builder.gep(offsets, [first]), counts)
            out_of_reach = load_plane(builder, row_pointer(context, builder, signature.args[1], hidden, block), 0)
            return any_bit(builder, builder.and_(builder.load(counts[-1]), builder.not_(out_of_reach)))

        return types.boolean(blocks, hidden, types.int64, lists, types.int64, types.int64, types.int64), generate

    return reaches


def _count_round(builder: Any, words: Any, offsets: Any, counts: list[Any]) -> None:
    """Add the next planes to the counts; the last of these marks the codes that overflowed."""
    planes = [(level, builder.load(count)) for level, count in enumerate(counts[:-1])]
    for i in range(PER_ROUND):
        offset = builder.zext(builder.load(builder.gep(offsets, [WORD(i)])), WORD)
        planes.append((0, load_plane(builder, builder.gep(words, [offset]), 0)))
    *sums, over = add_planes(builder, planes)
    for count, plane in zip(counts[:-1], sums, strict=True):
        builder.store(plane, count)
    builder.store(builder.or_(builder.load(counts[-1]), over), counts[-1])


reaches: Any = _reaching(6)
"""(blocks (B, P, 4), hidden (B, 4), block, lists, row, rounds, least): whether a code has a 1 in at least `least` planes.

`least` is 1 to 64. The planes are 8 * rounds entries of a row of `lists`: their word offsets in the block. Hidden slots are
never counted. The last plane of a block marks empty slots, which are hidden; listed itself, it adds nothing to any code.
"""

reaches_far: Any = _reaching(12)
"""The same for up to 4096 bits."""


@intrinsic
def _list_planes(typing_context: Any, word: Any, first: Any, table: Any, lists: Any, row: Any, listed: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, first, listed = arguments[0], arguments[1], arguments[5]
        (known,) = data_pointers(context, builder, signature.args[2:3], arguments[2:3])
        target = row_pointer(context, builder, signature.args[3], arguments[3], arguments[4])
        eight = ir.VectorType(ir.IntType(16), 8)
        for byte in range(8):
            bits = builder.and_(builder.lshr(word, WORD(8 * byte)), WORD(255))
            source = builder.gep(known, [builder.mul(bits, WORD(8))])
            planes = builder.load(builder.bitcast(source, eight.as_pointer()))
            planes.align = 2
            begin = builder.trunc(builder.add(first, WORD(32 * byte)), ir.IntType(16))
            moved = builder.add(planes, builder.bitcast(_eightfold(builder, begin), eight))
            builder.store(moved, builder.bitcast(builder.gep(target, [listed]), eight.as_pointer())).align = 2
            listed = builder.add(listed, builder.ctpop(bits))
        return listed

    signature = types.int64(types.uint64, types.int64, table, lists, types.int64, types.int64)
    return signature, generate


def _eightfold(builder: Any, number: Any) -> Any:
    """Return eight times the same 16 bits."""
    eight = ir.VectorType(ir.IntType(16), 8)
    alone = builder.insert_element(ir.Constant(eight, ir.Undefined), number, ir.IntType(32)(0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
    return builder.shuffle_vector(alone, ir.Constant(eight, ir.Undefined), same)


list_planes: Any = _list_planes
"""(word, first, table, lists, row, listed): append to a row of `lists` the planes of the bits set in a word.

The planes of the word begin at `first`, and the row has `listed` entries so far; the new number is returned. Eight entries
are written for each byte, taken from `table` (256, 8); those of the next byte overwrite the invalid ones.
"""


@intrinsic
def _add_differences(typing_context: Any, blocks: Any, block: Any, part: Any, bits: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        source = builder.gep(words, [builder.mul(arguments[2], WORD(64 * 4))])
        query, target = data_pointers(context, builder, signature.args[3:], arguments[3:])
        terms = [(level, load_plane(builder, target, 4 * level)) for level in range(DISTANCE_PLANES)]
        for i in range(64):
            bit = broadcast(builder, builder.load(builder.gep(query, [WORD(i)])))
            terms.append((0, builder.xor(load_plane(builder, source, 4 * i), bit)))
        for level, plane in enumerate(add_planes(builder, terms)[:DISTANCE_PLANES]):
            store_plane(builder, plane, target, 4 * level)
        return context.get_dummy_value()

    return types.void(blocks, types.int64, types.int64, bits, sums), generate


add_differences: Any = _add_differences
"""(blocks (B, P, 4), block, part, bits (64,), sums (13, 4)): add how many bits of word `part` differ from a query's.

Each bit of the query is a word of all zeros or all ones.
"""
