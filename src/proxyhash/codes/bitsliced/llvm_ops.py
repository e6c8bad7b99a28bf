"""LLVM instructions on bit planes, for functions that are assembled by hand.

A plane is one bit of each of 256 items, (4,) words: bit i of word w belongs to item 64 w + i of a block.
"""

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

BLOCK = 256  # items a plane has a bit for
WORD = ir.IntType(64)
PLANE = ir.VectorType(WORD, BLOCK // 64)


def add_planes(builder: Any, planes: Iterable[tuple[int, Any]]) -> list[Any]:
    """Add up planes that come with the binary weight of their bits; return one plane for each weight.

    Three of a weight are added as soon as they are there, so that few wait and all of these stay in registers.
    """
    waiting: dict[int, list[Any]] = {}

    def put(weight: int, plane: Any) -> None:
        same = waiting.setdefault(weight, [])
        same.append(plane)
        if len(same) == 3:
            c, a, b = same  # the first is itself a sum, and comes in where it is waited for least
            differ = builder.xor(a, b)
            same[:] = [builder.xor(differ, c)]
            put(weight + 1, builder.or_(builder.and_(a, b), builder.and_(differ, c)))

    for weight, plane in planes:
        put(weight, plane)
    weight = 0
    while weight in waiting:
        if len(waiting[weight]) == 2:
            a, b = waiting[weight]
            waiting[weight] = [builder.xor(a, b)]
            put(weight + 1, builder.and_(a, b))
        weight += 1
    return [waiting[weight][0] for weight in sorted(waiting)]


def data_pointers(context: Any, builder: Any, kinds: Any, arguments: Any) -> list[Any]:
    """Return where the data of arguments, contiguous arrays of these types, begin."""
    pairs = zip(kinds, arguments, strict=True)
    return [context.make_array(array_type)(context, builder, array).data for array_type, array in pairs]


def load_plane(builder: Any, words: Any, first: int) -> Any:
    """Return the plane that begins so many words on."""
    plane = builder.load(builder.bitcast(builder.gep(words, [WORD(first)]), PLANE.as_pointer()))
    plane.align = 8  # that of words: numba promises no more
    return plane


def store_plane(builder: Any, plane: Any, words: Any, first: int) -> None:
    """Write a plane to where it begins so many words on."""
    builder.store(plane, builder.bitcast(builder.gep(words, [WORD(first)]), PLANE.as_pointer())).align = 8


def broadcast(builder: Any, word: Any) -> Any:
    """Return a plane of four times the same word."""
    lane, nothing = ir.IntType(32), ir.Constant(PLANE, ir.Undefined)
    first = builder.insert_element(nothing, word, lane(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(lane, BLOCK // 64), [0] * (BLOCK // 64)))


def any_bit(builder: Any, plane: Any) -> Any:
    """Return whether a plane holds a 1."""
    whole = ir.IntType(BLOCK)
    return builder.icmp_unsigned("!=", builder.bitcast(plane, whole), whole(0))
