"""Squared Euclidean distances of int8 values, by vector instructions of any processor."""
# ruff: noqa: ARG001 -- numba passes the types of all arguments to an intrinsic, which needs few of them

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from proxyhash.codes.bitsliced.llvm_ops import WORD, row_pointer

cgutils: Any = untyped_cgutils

_CHUNK = 32  # values that are compared at once: two registers of 16 bits each with AVX2, one with AVX-512
_INT32 = ir.IntType(32)
_VALUES, _DIFFERENCES, _PRODUCTS = (ir.VectorType(ir.IntType(bits), _CHUNK) for bits in (8, 16, 32))
_SUMS = ir.VectorType(_INT32, _CHUNK // 2)


@intrinsic
def _squared_distance(typing_context: Any, values: Any, slot: Any, queries: Any, q: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        query = row_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        width = builder.extract_value(context.make_array(signature.args[0])(context, builder, arguments[0]).shape, 1)
        sums, rest = cgutils.alloca_once(builder, _SUMS), cgutils.alloca_once(builder, _INT32)
        builder.store(ir.Constant(_SUMS, [0] * _SUMS.count), sums)
        builder.store(_INT32(0), rest)
        chunks = builder.udiv(width, WORD(_CHUNK))
        with cgutils.for_range(builder, chunks) as loop:
            squares = _chunk_squares(builder, row, query, builder.mul(loop.index, WORD(_CHUNK)))
            builder.store(builder.add(builder.load(sums), squares), sums)
        with cgutils.for_range(builder, width, builder.mul(chunks, WORD(_CHUNK))) as loop:
            value, other = (builder.sext(builder.load(builder.gep(at, [loop.index])), _INT32) for at in (row, query))
            difference = builder.sub(value, other)
            builder.store(builder.add(builder.load(rest), builder.mul(difference, difference)), rest)
        total = builder.add(_add_lanes(builder, builder.load(sums)), builder.load(rest))
        return builder.zext(total, WORD)

    return types.int64(values, types.int64, queries, types.int64), generate


def _chunk_squares(builder: Any, row: Any, query: Any, first: Any) -> Any:
    """Return the squared differences of a chunk of values, those of neighbors added.

    Squares of 32 bits whose neighbors are added are recognized by LLVM: it is one instruction, vpmaddwd or vpdpwssd.
    """
    value, other = (
        builder.load(builder.bitcast(builder.gep(at, [first]), kind.as_pointer()))
        for at, kind in ((row, _VALUES), (query, _DIFFERENCES))
    )
    value.align, other.align = 1, 2
    difference = builder.sext(builder.sub(builder.sext(value, _DIFFERENCES), other), _PRODUCTS)
    squares = builder.mul(difference, difference)
    even, odd = (ir.Constant(_SUMS, list(range(start, _CHUNK, 2))) for start in (0, 1))
    return builder.add(builder.shuffle_vector(squares, squares, even), builder.shuffle_vector(squares, squares, odd))


def _add_lanes(builder: Any, sums: Any) -> Any:
    name = f"llvm.vector.reduce.add.v{_SUMS.count}i32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_INT32, [_SUMS]), name)
    return builder.call(function, [sums])


squared_distance: Any = _squared_distance
"""(values (slots, v) of int8, slot, queries (Q, v) of int16, q): the squared Euclidean distance of a row and a query."""
