"""Conditions of filter expressions over whole columns in memory."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import Int64s
from proxyhash.index.where.conditions import (
    MAX_SPANS,
    Condition,
    FunctionCondition,
    JoinedCondition,
    Mask,
    NotCondition,
    Rows,
    SpanCondition,
    join_spans,
)
from proxyhash.index.where.expression import And, Comparison, Expression, Not
from proxyhash.utils.jit import cold_start, jit

_NUMPY_SECONDS = 5e-9  # that numpy takes to look up a code
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


def compile_expression(expression: Expression, columns: Mapping[str, ColumnValues]) -> Condition:
    """Return the condition that an expression means; texts and keys are looked up now.

    Parameters
    ----------
    expression
        The expression, from `bind_expression`.
    columns
        Values (n,) of each column that it names.

    Returns
    -------
    Condition
        The condition on the n rows. A comparison with a missing value is false.

    Examples
    --------
    >>> values = NumberValues(np.array([2019, 2021]))
    >>> compile_expression(Comparison("year", ">", 2020), {"year": values}).test(slice(0, 2)).tolist()
    [False, True]
    """
    if isinstance(expression, Comparison):
        return _compile_comparison(expression, columns[expression.name])
    if isinstance(expression, Not):
        return NotCondition(compile_expression(expression.operand, columns))
    operands = [compile_expression(operand, columns) for operand in expression.operands]
    return JoinedCondition(operands, is_all=isinstance(expression, And))


def _compile_comparison(comparison: Comparison, column: ColumnValues) -> Condition:
    if isinstance(column, NumberValues):
        return _compile_numbers(comparison, column)
    if isinstance(column, KeyValues):
        return _compile_keys(comparison, column)
    if isinstance(column, LabelSets):
        return _compile_codes(column.codes, _label_table(comparison, column))
    return _compile_texts(comparison, column)


def _compile_texts(comparison: Comparison, column: CodedValues) -> Condition:
    """Return the condition of a comparison with texts: by the codes of the constants, or by a table of all texts."""
    as_numbers = NumberValues(column.codes, column.known)
    if comparison.value is None:
        return _compile_numbers(comparison, as_numbers)
    if comparison.operator in ("==", "!=", "in", "not in"):
        codes = tuple(column.find([str(text) for text in comparison.values]))
        operator = "in" if comparison.operator in ("==", "in") else "not in"
        return _compile_numbers(Comparison(comparison.name, operator, codes), as_numbers)
    condition = _compile_codes(column.codes, _text_table(comparison, column))
    if column.known is None:
        return condition
    return JoinedCondition([condition, _compile_known(as_numbers, wanted=True)], is_all=True)


def _compile_numbers(comparison: Comparison, column: NumberValues) -> Condition:
    """Return the condition of a comparison with numbers, exact for constants that the type of the column cannot hold."""
    if comparison.value is None:
        return _compile_known(column, wanted=comparison.operator == "!=")
    is_negated = comparison.operator in ("!=", "not in")
    operator = "==" if comparison.operator in ("!=", "in", "not in") else comparison.operator
    spans = [_span(operator, constant, column.values.dtype) for constant in comparison.values]
    joined = join_spans([(low, high) for low, high in spans if low <= high])
    return SpanCondition(column.values, joined, column.known, is_negated)


def _compile_known(column: NumberValues, *, wanted: bool) -> Condition:
    """Return the condition that a value is not missing, or that it is."""
    if column.known is None:
        return FunctionCondition(lambda rows: np.full(len(column.values[rows]), wanted))
    return SpanCondition(column.known.view(np.uint8), [(int(wanted), int(wanted))], None)


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


def _compile_keys(comparison: Comparison, column: KeyValues) -> Condition:
    item_ids = column.find([str(key) for key in comparison.values])
    negated = comparison.operator in ("!=", "not in")
    return FunctionCondition(lambda rows: np.isin(column.item_ids[rows], item_ids, invert=negated))


def _compile_codes(codes: NDArray[Any], table: Mask) -> Condition:
    """Return the condition that a table (D,) is True for a code: by spans of codes if these are few."""
    table = table[: 1 + int(np.iinfo(codes.dtype).max)]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], table, [False]]).astype(np.int8)))
    spans = [(int(low), int(high) - 1) for low, high in edges.reshape(-1, 2)]
    if len(spans) <= MAX_SPANS:
        return SpanCondition(codes, spans, None)
    if cold_start.use_numpy(_NUMPY_SECONDS * len(codes)):
        return FunctionCondition(lambda rows: table[codes[rows]])

    def test(rows: Rows) -> Mask:
        mine = codes[rows]
        out = np.empty(len(mine), np.bool_)
        _gather(table, mine, out)
        return out

    return FunctionCondition(test)


@jit(nogil=True, skip_refcounts=True)
def _gather(table: Mask, codes: NDArray[Any], out: Mask) -> None:
    """Write the entry of a table (D,) for each of `codes` (n,) to `out` (n,)."""
    for row in range(len(codes)):
        out[row] = table[codes[row]]
