"""LLVM instructions on bit planes, from which numba intrinsics are composed.

A plane holds one bit of each item of a block: bit i of word w belongs to item 64 w + i. A plane is one register of the
processor: 512 items with AVX-512, else 256. Clusters of an index always have planes of 256 items, so that they stay small.
"""

from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import config

cgutils: Any = untyped_cgutils

BLOCK = 256  # items in a plane of a cluster
WORD = ir.IntType(64)
PLANE = ir.VectorType(WORD, BLOCK // 64)


def _has_feature(name: str) -> bool:
    """Return whether compiled functions use a feature of the processor; NUMBA_CPU_FEATURES can disable it."""
    chosen = config.CPU_FEATURES  # type: ignore[attr-defined]
    if chosen is not None:
        return f"+{name}" in chosen.split(",")
    return bool(llvm.get_host_cpu_features().get(name))


WIDE_WORDS = 8 if _has_feature("avx512f") else 4  # words of the widest register
WIDE_BLOCK = 64 * WIDE_WORDS
WIDE_PLANE = ir.VectorType(WORD, WIDE_WORDS)
_TERNARY_WORDS = (4, 8) if _has_feature("avx512vl") else ()  # words of registers for which there is vpternlogq


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
            total, carry = _full_adder(builder, a, b, c)
            same[:] = [total]
            put(weight + 1, carry)

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


def _full_adder(builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return the sum and the carry of three planes, by two instructions with AVX-512, else by five."""
    if a.type.count in _TERNARY_WORDS:
        return _ternary(builder, a, b, c, 0x96), _ternary(builder, a, b, c, 0xE8)
    differ = builder.xor(a, b)
    return builder.xor(differ, c), builder.or_(builder.and_(a, b), builder.and_(differ, c))


def mark_below(builder: Any, planes: Iterable[Any], limit: Iterable[Any]) -> Any:
    """Return a plane that marks the items whose number, given by planes from the lowest bit, is below a limit's."""
    below = None
    for plane, bit in zip(planes, limit, strict=True):  # from the lowest bit: a higher one decides
        if below is None:
            below = builder.and_(builder.not_(plane), bit)
        elif plane.type.count in _TERNARY_WORDS:
            below = _ternary(builder, plane, bit, below, 0x8E)
        else:
            either = builder.and_(builder.not_(plane), builder.or_(bit, below))
            below = builder.or_(builder.and_(bit, below), either)
    return below


def _ternary(builder: Any, a: Any, b: Any, c: Any, truth: int) -> Any:
    """Return a function of three planes, given by its truth table: bit 4 a + 2 b + c of `truth`."""
    kind, number = a.type, ir.IntType(32)
    name = f"llvm.x86.avx512.pternlog.q.{64 * kind.count}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, kind, kind, number]), name)
    return builder.call(function, [a, b, c, number(truth)])


def data_pointers(context: Any, builder: Any, kinds: Any, arguments: Any) -> list[Any]:
    """Return pointers to the data of arguments, which are contiguous arrays of these types."""
    pairs = zip(kinds, arguments, strict=True)
    return [context.make_array(array_type)(context, builder, array).data for array_type, array in pairs]


def row_pointer(context: Any, builder: Any, kind: Any, array: Any, *indices: Any) -> Any:
    """Return a pointer to a part of a contiguous array, given by its first indices; a view would need reference counting."""
    view = context.make_array(kind)(context, builder, array)
    sizes = [builder.extract_value(view.shape, axis) for axis in range(kind.ndim)]
    offset = WORD(0)
    for axis, size in enumerate(sizes):
        offset = builder.mul(offset, size)
        if axis < len(indices):
            offset = builder.add(offset, indices[axis])
    return builder.gep(view.data, [offset])


def load_plane(builder: Any, words: Any, first: int, kind: Any = PLANE) -> Any:
    """Load the plane that begins at word `first`."""
    plane = builder.load(builder.bitcast(builder.gep(words, [WORD(first)]), kind.as_pointer()))
    plane.align = 8  # numba aligns arrays to words only
    return plane


def prefetch(builder: Any, words: Any, first: int) -> None:
    """Ask for the cache line with word `first`, which may be beyond the end of an array."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    address = builder.bitcast(builder.gep(words, [WORD(first)]), byte)
    builder.call(function, [address, number(0), number(3), number(1)])  # to read, kept in all caches, data


def store_plane(builder: Any, plane: Any, words: Any, first: int) -> None:
    """Store a plane that begins at word `first`."""
    builder.store(plane, builder.bitcast(builder.gep(words, [WORD(first)]), plane.type.as_pointer())).align = 8


def broadcast(builder: Any, word: Any, kind: Any = PLANE) -> Any:
    """Return a plane that repeats one word."""
    lane, nothing = ir.IntType(32), ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, word, lane(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(lane, kind.count), [0] * kind.count))


def any_bit(builder: Any, plane: Any) -> Any:
    """Return whether a plane holds a 1."""
    whole = ir.IntType(64 * plane.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(plane, whole), whole(0))
