"""Codes in the slots of a mask, read from bit planes."""
# ruff: noqa: ARG001 -- numba passes the types of all arguments to an intrinsic, which needs few of them

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import (
    WIDE_PLANE,
    WIDE_WORDS,
    WORD,
    broadcast,
    load_plane,
    row_pointer,
    store_plane,
)
from proxyhash.codes.kernels import popcount
from proxyhash.utils.jit import jit

cgutils: Any = untyped_cgutils


def _repeat(word: int) -> Any:
    return ir.Constant(WIDE_PLANE, [word] * WIDE_WORDS)


@intrinsic
def _read_lanes(typing_context: Any, planes: Any, block: Any, first: Any, count: Any, items: Any, row: Any, out: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        planes, block, first, count, items, row, out = arguments
        source = row_pointer(context, builder, signature.args[0], planes, block, first)
        item = load_plane(builder, row_pointer(context, builder, signature.args[4], items, row), 0, WIDE_PLANE)
        shifts = builder.sub(_repeat(63), item)
        found = cgutils.alloca_once(builder, WIDE_PLANE)
        builder.store(_repeat(0), found)
        with cgutils.for_range(builder, count) as loop:  # in the order of addresses, or the processor would not read ahead
            words = builder.gep(source, [builder.mul(loop.index, WORD(WIDE_WORDS))])
            bits = builder.and_(builder.shl(load_plane(builder, words, 0, WIDE_PLANE), shifts), _repeat(1 << 63))
            builder.store(builder.or_(builder.lshr(builder.load(found), _repeat(1)), bits), found)
        unused = broadcast(builder, builder.sub(WORD(64), count), WIDE_PLANE)
        target = row_pointer(context, builder, signature.args[6], out, row)
        store_plane(builder, builder.lshr(builder.load(found), unused), target, 0)
        return context.get_dummy_value()

    signature = types.void(planes, types.int64, types.int64, types.int64, items, types.int64, out)
    return signature, generate


read_lanes: Any = _read_lanes
"""(planes (B, P, L), block, first, count, items (R, L), row, out (R, L)): read a part of one code from each of L words.

The part is bits first to first + count - 1 of the code; word w of the block holds 64 codes, of which number items[row, w] is
read to out[row, w].
"""


@jit(nogil=True)
def join_masked(planes: Words, mask: Words, first: int, codes: Words, slots: NDArray[np.int64]) -> None:
    """Write the codes in the slots of a mask, ascending, to `codes` (n, W), and these slots to `slots` (n,).

    `planes` (B, P, L) and `mask` (B, L) are those of blocks from block `first` on. Each round reads one code from each word
    of the mask, so that a plane is one register. A word without a further code writes to a spare row, because a branch that
    the processor cannot predict takes longer.
    """
    lanes, bits, parts, end = mask.shape[1], planes.shape[1], codes.shape[1], 0
    spare = 64 * lanes
    found, numbers = np.empty((spare + 1, parts), np.uint64), np.empty(spare + 1, np.int64)
    items, words = np.zeros((1, lanes), np.uint64), np.zeros((1, lanes), np.uint64)
    left, rows, targets = np.empty(lanes, np.uint64), np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    for block in range(len(planes)):
        remaining, count = np.uint64(0), np.int64(0)
        for lane in range(lanes):
            left[lane], rows[lane] = mask[block, lane], count
            remaining |= left[lane]
            count += np.int64(popcount(left[lane]))
        while remaining:
            remaining = np.uint64(0)
            for lane in range(lanes):
                items[0, lane] = popcount((left[lane] & -left[lane]) - np.uint64(1)) & np.uint64(63)
                targets[lane] = rows[lane] if left[lane] else spare
                numbers[targets[lane]] = 64 * (lanes * (first + block) + lane) + np.int64(items[0, lane])
                rows[lane] += 1
                left[lane] &= left[lane] - np.uint64(1)
                remaining |= left[lane]
            for part in range(parts):
                read_lanes(planes, block, 64 * part, min(64, bits - 64 * part), items, 0, words)
                for lane in range(lanes):
                    found[targets[lane], part] = words[0, lane]
        for row in range(count):
            slots[end + row] = numbers[row]
            for part in range(parts):
                codes[end + row, part] = found[row, part]
        end += count
