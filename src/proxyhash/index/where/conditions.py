"""Conditions on the rows of columns: tested for some rows, or for all rows as a mask of bits."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.slot_mask import SlotMask, pack_bits
from proxyhash.index.item_ids import Int64s
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import over_slices

Mask = NDArray[np.bool_]
Rows = slice | Int64s
Span = tuple[Any, Any]
"""The least and the largest value of a type that are meant."""

_ROWS_PER_STEP = 1 << 19  # a multiple of 64; what is computed for them stays in the cache
MAX_SPANS = 3  # that are compared one by one; more are searched for in order
_NUMPY_SECONDS = 1e-9  # that numpy takes to compare a value


class Condition(ABC):
    """A condition that each row of some columns meets or not."""

    @abstractmethod
    def test(self, rows: Rows) -> Mask:
        """Return which of some rows meet the condition."""

    def words(self, rows: slice) -> Words:
        """Return which of a range of rows meet the condition, as bits; those beyond the range are undefined."""
        return pack_bits(self.test(rows), -(-(rows.stop - rows.start) // 64))

    def mask(self, count: int, threads: int | None = None) -> SlotMask:
        """Return which of the first `count` rows meet the condition, tested for many at a time."""
        out = np.zeros(-(-count // 64), np.uint64)

        def run(rows: slice) -> None:
            out[rows.start // 64 : -(-rows.stop // 64)] = self.words(rows)

        over_slices(count, _ROWS_PER_STEP, run, threads)
        if count % 64:
            out[-1] &= np.uint64((1 << count % 64) - 1)
        return SlotMask(out)


@dataclass(frozen=True, eq=False)
class FunctionCondition(Condition):
    """A condition given by the function that tests it."""

    function: Callable[[Rows], Mask]

    def test(self, rows: Rows) -> Mask:
        """Return which of some rows meet the condition."""
        return self.function(rows)


@dataclass(frozen=True, eq=False)
class NotCondition(Condition):
    """A condition that is met where another one is not."""

    operand: Condition

    def test(self, rows: Rows) -> Mask:
        """Return which of some rows meet the condition."""
        return ~self.operand.test(rows)

    def words(self, rows: slice) -> Words:
        """Return which of a range of rows meet the condition, as bits."""
        return ~self.operand.words(rows)


@dataclass(frozen=True, eq=False)
class JoinedCondition(Condition):
    """All of some conditions, or any of them."""

    operands: Sequence[Condition]
    is_all: bool

    def test(self, rows: Rows) -> Mask:
        """Return which of some rows meet the condition."""
        return self._join([operand.test(rows) for operand in self.operands])

    def words(self, rows: slice) -> Words:
        """Return which of a range of rows meet the condition, as bits."""
        return self._join([operand.words(rows) for operand in self.operands])

    def _join(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        return reduce(np.bitwise_and if self.is_all else np.bitwise_or, parts)


@dataclass(frozen=True, eq=False)
class SpanCondition(Condition):
    """Values (n,) in one of some spans, or in none if `is_negated`; a missing value (`known` is False) never meets it.

    `known` (n,) is None if no value is missing.

    Examples
    --------
    >>> condition = SpanCondition(np.array([2019, 2021, 2023]), [(2020, 2022)], None)
    >>> condition.mask(3).slots().tolist()
    [1]
    """

    values: NDArray[Any]
    spans: Sequence[Span]
    known: Mask | None
    is_negated: bool = False

    def test(self, rows: Rows) -> Mask:
        """Return which of some rows meet the condition."""
        mask = in_spans(self.values[rows], self.spans)
        if self.is_negated:
            np.logical_not(mask, out=mask)
        return mask if self.known is None else np.logical_and(mask, self.known[rows], out=mask)

    def words(self, rows: slice) -> Words:
        """Return which of a range of rows meet the condition, as bits: compiled, 64 values at a time."""
        count = rows.stop - rows.start
        if len(self.spans) > MAX_SPANS or cold_start.use_numpy(_NUMPY_SECONDS * count):
            return super().words(rows)
        out = _mark_spans(self.values[rows], self.spans)
        if self.is_negated:
            np.invert(out, out=out)
        if self.known is not None:
            out &= _mark_spans(self.known[rows].view(np.uint8), [(1, 1)])
        return out


def _mark_spans(values: NDArray[Any], spans: Sequence[Span]) -> Words:
    """Return which values (n,) are in one of some spans, as bits."""
    from proxyhash.index.where.mask_kernels import mark_span  # defines compiled functions

    out, values = np.zeros(-(-len(values) // 64), np.uint64), np.ascontiguousarray(values)
    for low, high in spans:
        mark_span(values, values.dtype.type(low), values.dtype.type(high), out)
    return out


def join_spans(spans: Sequence[Span]) -> list[Span]:
    """Return spans in ascending order, with those of equal or following whole numbers as one.

    >>> join_spans([(5, 5), (1, 2), (3, 3)])
    [(1, 3), (5, 5)]
    """
    out: list[Span] = []
    for low, high in sorted(set(spans)):
        if out and isinstance(low, int) and low == out[-1][1] + 1:
            out[-1] = out[-1][0], high
        else:
            out.append((low, high))
    return out


def in_spans(values: NDArray[Any], spans: Sequence[Span]) -> Mask:
    """Return which values (n,) are in one of some spans of their type, ends included."""
    if len(spans) > MAX_SPANS:
        lows, highs = (np.array(ends, values.dtype) for ends in zip(*spans, strict=True))
        number = np.searchsorted(lows, values, side="right") - 1
        is_inside: Mask = (number >= 0) & (values <= highs[np.maximum(number, 0)])
        return is_inside
    if not spans:
        return np.zeros(len(values), np.bool_)
    mask = _in_span(values, *spans[0])
    for low, high in spans[1:]:
        mask |= _in_span(values, low, high)
    return mask


def _in_span(values: NDArray[Any], low: Any, high: Any) -> Mask:
    mask = np.ones(len(values), np.bool_)
    is_float = values.dtype.kind == "f"
    first, last = (-math.inf, math.inf) if is_float else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    if low == high:
        np.equal(values, low, out=mask)
    elif low == first and high != last:
        np.less_equal(values, high, out=mask)
    elif low != first:
        np.greater_equal(values, low, out=mask)
        if high != last:
            np.logical_and(mask, np.less_equal(values, high), out=mask)
    return mask
