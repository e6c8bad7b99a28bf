"""LLVM instructions on bit planes, from which numba intrinsics are composed.

A plane is one bit of each of 256 items, (4,) words: bit i of word w belongs to item 64 w + i of a block.
"""

from collections.abc import Iterable
from typing import Any

from llvmlite import ir

BLOCK = 256  # items in a plane
WORD = ir.IntType(64)
PLANE = ir.VectorType(WORD, BLOCK // 64)


def add_planes(builder: Any, planes: Iterable[tuple[int, Any]]) -> list[Any]:
    """Add planes given with the binary weights of their bits; return one plane for each weight.

    Three planes of one weight are added as soon as they exist, so that few are alive and all stay in registers.
    """
    waiting: dict[int, list[Any]] = {}

    def put(weight: int, plane: Any) -> None:
        same = waiting.setdefault(weight, [])
        same.append(plane)
        if len(same) == 3:
            c, a, b = same  # the first is itself a sum, so it enters last
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
    """Return pointers to the data of arguments, which are contiguous arrays of these types."""
    pairs = zip(kinds, arguments, strict=True)
    return [context.make_array(array_type)(context, builder, array).data for array_type, array in pairs]


def load_plane(builder: Any, words: Any, first: int) -> Any:
    """Load the plane that begins at word `first`."""
    plane = builder.load(builder.bitcast(builder.gep(words, [WORD(first)]), PLANE.as_pointer()))
    plane.align = 8  # numba aligns arrays to words only
    return plane


def store_plane(builder: Any, plane: Any, words: Any, first: int) -> None:
    """Store a plane that begins at word `first`."""
    builder.store(plane, builder.bitcast(builder.gep(words, [WORD(first)]), PLANE.as_pointer())).align = 8


def broadcast(builder: Any, word: Any) -> Any:
    """Return a plane that repeats one word four times."""
    lane, nothing = ir.IntType(32), ir.Constant(PLANE, ir.Undefined)
    first = builder.insert_element(nothing, word, lane(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(lane, BLOCK // 64), [0] * (BLOCK // 64)))


def any_bit(builder: Any, plane: Any) -> Any:
    """Return whether a plane holds a 1."""
    whole = ir.IntType(BLOCK)
    return builder.icmp_unsigned("!=", builder.bitcast(plane, whole), whole(0))
