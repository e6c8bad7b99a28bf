"""Kernels that compare a column with a span of values, each for one thread without the interpreter's lock."""
# ruff: noqa: ARG001 -- numba passes the types of all arguments to an intrinsic, which needs few of them

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import row_pointer
from proxyhash.utils.jit import jit


@intrinsic
def _mark_64(typing_context: Any, values: Any, first: Any, low: Any, high: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        kind = ir.VectorType(source.type.pointee, 64)
        vector = builder.load(builder.bitcast(source, kind.as_pointer()))
        vector.align = signature.args[0].dtype.bitwidth // 8
        ends = [_repeat(builder, end, kind) for end in arguments[2:]]
        compare = _comparison(builder, signature.args[0].dtype)
        marks = builder.and_(compare(">=", vector, ends[0]), compare("<=", vector, ends[1]))
        return builder.bitcast(marks, ir.IntType(64))

    return types.uint64(values, types.int64, values.dtype, values.dtype), generate


def _comparison(builder: Any, kind: Any) -> Any:
    if isinstance(kind, types.Float):
        return builder.fcmp_ordered
    return builder.icmp_signed if kind.signed else builder.icmp_unsigned


def _repeat(builder: Any, value: Any, kind: Any) -> Any:
    lane = ir.IntType(32)
    alone = builder.insert_element(ir.Constant(kind, ir.Undefined), value, lane(0))
    same = ir.Constant(ir.VectorType(lane, kind.count), [0] * kind.count)
    return builder.shuffle_vector(alone, ir.Constant(kind, ir.Undefined), same)


mark_64: Any = _mark_64
"""(values (n,), first, low, high): a word whose bit i tells whether values[first + i] is in the span, ends included."""


@jit(nogil=True)
def mark_span(values: NDArray[Any], low: Any, high: Any, out: Words) -> None:
    """Set the bits of `out` (n / 64,) of the `values` (n,) that are in a span, ends included."""
    whole = len(values) // 64
    for word in range(whole):
        out[word] |= mark_64(values, 64 * word, low, high)
    for row in range(64 * whole, len(values)):
        if low <= values[row] <= high:
            out[whole] |= np.uint64(1) << np.uint64(row % 64)
