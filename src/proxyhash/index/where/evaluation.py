"""Evaluation of a filter expression over whole columns in memory."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import Int64s
from proxyhash.index.where.expression import And, Comparison, Expression, Not
from proxyhash.index.where.mask_kernels import list_true
from proxyhash.utils.jit import cold_start, jit
from proxyhash.utils.parallel import over_slices

Mask = NDArray[np.bool_]
Rows = slice | Int64s
Test = Callable[[Rows], Mask]
"""Returns which of some rows meet a condition."""

_ROWS_PER_STEP = 1 << 17  # so that what is computed for them stays in the cache
_MAX_RANGES = 3  # of codes; more are looked up in a table
_NUMPY_SECONDS = 5e-9  # that numpy takes to look up a code
_LISTING_SECONDS = 3e-10  # that numpy takes for a row of a mask
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, eq=False)
class NumberValues:
    """Numbers or dates `values` (n,), in as few bytes as they need; `known` (n,) is None if no value is missing."""

    values: NDArray[Any]
    known: Mask | None = None


@dataclass(frozen=True, eq=False)
class CodedValues:
    """Texts as `codes` (n,); `known` (n,) is None if no text is missing.

    `find` returns the codes of those of some texts that have one, and `texts` the codes (D,) and texts of all values.
    """

    codes: NDArray[Any]
    known: Mask | None
    find: Callable[[Sequence[str]], Sequence[int]]
    texts: Callable[[], tuple[NDArray[Any], Sequence[str]]]


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Labels as `codes` (n,): the index of the labels of an item in `sets`."""

    codes: NDArray[Any]
    sets: Sequence[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class KeyValues:
    """Keys as `item_ids` (n,), and a function that returns the ids of some keys, ascending."""

    item_ids: Int64s
    find: Callable[[Sequence[str]], Int64s]


ColumnValues = NumberValues | CodedValues | LabelSets | KeyValues


def evaluate(expression: Expression, columns: Mapping[str, ColumnValues], count: int, threads: int | None = None) -> Mask:
    """Return which of `count` rows an expression keeps.

    Parameters
    ----------
    expression
        The expression, from `bind_expression`.
    columns
        Values (count,) of each column that it names.
    count
        Number of rows.
    threads
        Number of threads; None: all cores.

    Returns
    -------
    ndarray of bool
        (count,): True for the rows that are kept. A comparison with a missing value is false.

    Examples
    --------
    >>> values = NumberValues(np.array([2019, 2021]))
    >>> evaluate(Comparison("year", ">", 2020), {"year": values}, 2).tolist()
    [False, True]
    """
    return run_test(compile_expression(expression, columns), count, threads)


def run_test(test: Test, count: int, threads: int | None = None) -> Mask:
    """Return which of `count` rows (count,) meet a condition; it is tested for many at a time."""
    out = np.empty(count, np.bool_)

    def run(rows: slice) -> None:
        out[rows] = test(rows)

    over_slices(count, _ROWS_PER_STEP, run, threads)
    return out


def _list_rows(mask: Mask) -> Int64s:
    """Return the numbers of the rows that are True."""
    numbers = np.empty(len(mask) + 1, np.int64)
    return numbers[: list_true(np.ascontiguousarray(mask), numbers)].copy()


def find_rows(test: Test, count: int, threads: int | None = None) -> Int64s:
    """Return the numbers of those of `count` rows that meet a condition, ascending: a mask of all rows is not written."""
    found: dict[int, Int64s] = {}
    list_rows = np.flatnonzero if cold_start.use_numpy(_LISTING_SECONDS * count) else _list_rows

    def run(rows: slice) -> None:
        found[rows.start] = rows.start + list_rows(test(rows))

    over_slices(count, _ROWS_PER_STEP, run, threads)
    return np.concatenate([np.zeros(0, np.int64), *(found[first] for first in sorted(found))])


def compile_expression(expression: Expression, columns: Mapping[str, ColumnValues]) -> Test:
    """Return the test of an expression for rows of some columns; texts and keys are looked up now."""
    if isinstance(expression, Comparison):
        return _compile_comparison(expression, columns[expression.name])
    if isinstance(expression, Not):
        inner = compile_expression(expression.operand, columns)
        return lambda rows: ~inner(rows)
    tests = [compile_expression(operand, columns) for operand in expression.operands]
    join = np.logical_and if isinstance(expression, And) else np.logical_or

    def run(rows: Rows) -> Mask:
        mask = tests[0](rows)
        for test in tests[1:]:
            mask = join(mask, test(rows), out=mask)
        return mask

    return run


def _compile_comparison(comparison: Comparison, column: ColumnValues) -> Test:
    if isinstance(column, NumberValues):
        return _test_numbers(comparison, column)
    if isinstance(column, KeyValues):
        return _test_keys(comparison, column)
    if isinstance(column, LabelSets):
        return _test_codes(column.codes, _label_table(comparison, column))
    return _test_texts(comparison, column)


def _test_texts(comparison: Comparison, column: CodedValues) -> Test:
    """Return the test of a comparison with texts: of codes with the codes of constants, or by a table of all texts."""
    as_numbers = NumberValues(column.codes, column.known)
    if comparison.value is None:
        return _test_numbers(comparison, as_numbers)
    if comparison.operator in ("==", "!=", "in", "not in"):
        codes = tuple(column.find([str(text) for text in comparison.values]))
        operator = "in" if comparison.operator in ("==", "in") else "not in"
        return _test_numbers(Comparison(comparison.name, operator, codes), as_numbers)
    test = _test_codes(column.codes, _text_table(comparison, column))
    if column.known is None:
        return test
    known = column.known
    return lambda rows: test(rows) & known[rows]


def _test_numbers(comparison: Comparison, column: NumberValues) -> Test:
    """Return the test of a comparison with numbers, exact for constants that the type of the column cannot hold."""
    values, known = column.values, column.known
    if comparison.value is None:
        return _test_known(column, wanted=comparison.operator == "!=")
    negated = comparison.operator in ("!=", "not in")
    operator = "==" if comparison.operator in ("!=", "in", "not in") else comparison.operator
    spans = [_span(operator, constant, values.dtype) for constant in comparison.values]
    joined = _join_spans([(low, high) for low, high in spans if low <= high])

    def run(rows: Rows) -> Mask:
        mask = _in_spans(values[rows], joined)
        mask = np.logical_not(mask, out=mask) if negated else mask
        return mask if known is None else np.logical_and(mask, known[rows], out=mask)

    return run


def _test_known(column: NumberValues, *, wanted: bool) -> Test:
    def run(rows: Rows) -> Mask:
        if column.known is None:
            return np.full(len(column.values[rows]), wanted)
        return column.known[rows].copy() if wanted else ~column.known[rows]

    return run


def _span(operator: str, constant: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and the largest value of a type that meet a comparison; the first is larger if there is none."""
    if dtype.kind == "f":
        low, high, up, down = -math.inf, math.inf, _float_above, _float_below
    else:
        bounds = np.iinfo(dtype)
        low, high, up, down = int(bounds.min), int(bounds.max), _int_above, _int_below
    if operator in ("==", ">=", ">"):
        low = max(low, up(constant, strict=operator == ">"))
    if operator in ("==", "<=", "<"):
        high = min(high, down(constant, strict=operator == "<"))
    return low, high


def _int_above(constant: float, *, strict: bool) -> int:
    return math.floor(constant) + 1 if strict else math.ceil(constant)


def _int_below(constant: float, *, strict: bool) -> int:
    return math.ceil(constant) - 1 if strict else math.floor(constant)


def _float_above(constant: float, *, strict: bool) -> float:
    return -_float_below(-constant, strict=strict)


def _float_below(constant: float, *, strict: bool) -> float:
    """Return the largest float that is at most a constant, or below it."""
    try:
        value = float(constant)
    except OverflowError:
        value = math.copysign(math.inf, constant)
    return math.nextafter(value, -math.inf) if value > constant or (strict and value == constant) else value


def _join_spans(spans: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return spans in ascending order, with those of equal or following whole numbers as one."""
    out: list[tuple[Any, Any]] = []
    for low, high in sorted(set(spans)):
        if out and isinstance(low, int) and low == out[-1][1] + 1:
            out[-1] = out[-1][0], high
        else:
            out.append((low, high))
    return out


def _in_spans(values: NDArray[Any], spans: list[tuple[Any, Any]]) -> Mask:
    """Return which values (n,) are in one of some spans of their type, ends included."""
    if len(spans) > _MAX_RANGES:
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


def _text_table(comparison: Comparison, column: CodedValues) -> Mask:
    """Return which codes of texts meet a comparison of their order, up to the largest code."""
    compare, bound = _ORDERS[comparison.operator], str(comparison.value)
    codes, texts = column.texts()
    table = np.zeros(1 + int(codes.max(initial=-1)), np.bool_)
    table[codes[[compare(text, bound) for text in texts]]] = True
    return table


def _label_table(comparison: Comparison, column: LabelSets) -> Mask:
    """Return which sets of labels meet a comparison, (S,)."""
    if comparison.value is None:
        has_labels = np.array([bool(labels) for labels in column.sets], np.bool_)
        return has_labels if comparison.operator == "!=" else ~has_labels
    wanted = set(comparison.values)
    table = np.array([not wanted.isdisjoint(labels) for labels in column.sets], np.bool_)
    return ~table if comparison.operator in ("!=", "not in") else table


def _test_keys(comparison: Comparison, column: KeyValues) -> Test:
    item_ids = column.find([str(key) for key in comparison.values])
    negated = comparison.operator in ("!=", "not in")

    def run(rows: Rows) -> Mask:
        return np.isin(column.item_ids[rows], item_ids, invert=negated)

    return run


def _test_codes(codes: NDArray[Any], table: Mask) -> Test:
    """Return the test whether a table (D,) is True for a code: by ranges of codes if these are few."""
    table = table[: 1 + int(np.iinfo(codes.dtype).max)]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], table, [False]]).astype(np.int8)))
    spans = [(int(low), int(high) - 1) for low, high in edges.reshape(-1, 2)]
    if len(spans) <= _MAX_RANGES:
        return lambda rows: _in_spans(codes[rows], spans)
    if cold_start.use_numpy(_NUMPY_SECONDS * len(codes)):
        return lambda rows: table[codes[rows]]

    def run(rows: Rows) -> Mask:
        mine = codes[rows]
        out = np.empty(len(mine), np.bool_)
        _look_up(table, mine, out)
        return out

    return run


@jit(nogil=True, skip_refcounts=True)
def _look_up(table: Mask, codes: NDArray[Any], out: Mask) -> None:
    """Write the entry of a table (D,) for each of `codes` (n,) to `out` (n,)."""
    for row in range(len(codes)):
        out[row] = table[codes[row]]
