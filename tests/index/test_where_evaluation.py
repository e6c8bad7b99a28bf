"""Binding and evaluation of filter expressions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.filters import COMPARE, NUMBERS, TEXTS, expressions, keeps, to_text
from proxyhash.codes.slot_mask import unpack_bits
from proxyhash.columns import ColumnType, to_microseconds
from proxyhash.index.where import conditions
from proxyhash.index.where.binding import bind_expression
from proxyhash.index.where.evaluation import (
    CodedValues,
    ColumnValues,
    KeyValues,
    LabelSets,
    NumberValues,
    compile_expression,
)
from proxyhash.index.where.expression import Expression, parse_expression
from proxyhash.index.where.mask_kernels import mark_span
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import cold_start

TYPES: Mapping[str, ColumnType] = {"whole": "number", "real": "number", "text": "text", "day": "date"}
ROWS = st.fixed_dictionaries(
    {
        "label": st.lists(st.sampled_from(TEXTS), max_size=3).map(tuple),
        "whole": st.none() | st.sampled_from([value for value in NUMBERS if isinstance(value, int) and value < 2**63]),
        "real": st.none() | st.sampled_from([float(value) for value in NUMBERS]) | st.floats(allow_nan=False, width=32),
        "text": st.none() | st.sampled_from(TEXTS),
        "day": st.none() | st.datetimes(datetime(1960, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    }
)


def columns_in_memory(rows: list[dict[str, Any]]) -> dict[str, ColumnValues]:
    """Return rows as columns, with types as small as the values allow."""
    sets = sorted({row["label"] for row in rows})
    texts = list({row["text"] for row in rows if row["text"] is not None})
    codes = np.array([0 if row["text"] is None else texts.index(row["text"]) for row in rows], np.uint8)
    known = np.array([row["text"] is not None for row in rows], np.bool_)
    find = lambda wanted: [texts.index(text) for text in wanted if text in texts]  # noqa: E731
    days = [None if row["day"] is None else to_microseconds(row["day"]) for row in rows]
    return {
        "label": LabelSets(np.array([sets.index(row["label"]) for row in rows], np.uint8), sets),
        "whole": numbers([row["whole"] for row in rows], np.dtype(np.int64)),
        "real": numbers([row["real"] for row in rows], np.dtype(np.float64)),
        "text": CodedValues(codes, None if known.all() else known, find, lambda: (np.arange(len(texts)), texts)),
        "day": numbers(days, np.dtype(np.int64)),
    }


def numbers(values: list[Any], dtype: np.dtype[Any]) -> NumberValues:
    known = np.array([value is not None for value in values], np.bool_)
    array = np.array([0 if value is None else value for value in values], dtype)
    if dtype.kind == "i" and len(array):
        array = array.astype(np.result_type(np.min_scalar_type(array.min()), np.min_scalar_type(array.max())))
    return NumberValues(array, None if known.all() else known)


def evaluate(expression: Expression, columns: Mapping[str, ColumnValues], count: int) -> NDArray[np.bool_]:
    """Return which rows an expression keeps, by a mask of all rows and by a test of each row, in any order."""
    condition = compile_expression(expression, columns)
    mask, order = condition.mask(count, threads=2), np.random.default_rng(count).permutation(count)
    tested = np.zeros(count, np.bool_)
    tested[order] = condition.test(order)
    np.testing.assert_array_equal(unpack_bits(mask.words, count), tested)
    assert mask.count == np.count_nonzero(tested)  # no bit beyond the rows
    return tested


@given(
    rows=st.lists(ROWS, max_size=150),
    expression=expressions(TYPES),
    step=st.sampled_from([64, 128, 1 << 17]),
    warm=st.booleans(),
)
def test_evaluation_equals_the_reference(rows: list[dict[str, Any]], expression: Expression, step: int, warm: bool) -> None:
    bound = bind_expression(parse_expression(to_text(expression)), TYPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "_ROWS_PER_STEP", step)
        patch.setattr(cold_start, "seconds", 0.0 if warm else 1e9)
        mask = evaluate(bound, columns_in_memory(rows), len(rows))
    assert mask.tolist() == [keeps(expression, row["label"], row, TYPES) for row in rows]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.float64])
@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_constants_beyond_the_type_of_a_column_are_exact(dtype: type, operator: str) -> None:
    values: NDArray[Any] = np.array([0, 1, 100, 127], dtype)
    for constant in (-(10**40), -1, 0.5, 100, 126.99, 127, 128, 2**64, 10**40):
        bound = bind_expression(parse_expression(f"x {operator} {constant}"), {"x": "number"})
        expected = [COMPARE[operator](value, constant) for value in values.tolist()]
        assert evaluate(bound, {"x": NumberValues(values)}, 4).tolist() == expected


def test_large_whole_numbers_are_compared_exactly_with_floats() -> None:
    values = NumberValues(np.array([2.0**53, 2.0**53 + 2]))
    bound = bind_expression(parse_expression(f"x < {2**53 + 1}"), {"x": "number"})
    assert evaluate(bound, {"x": values}, 2).tolist() == [True, False]


def test_keys_are_found_by_their_ids() -> None:
    keys = {"a": 10, "b": 11, "c": 12}
    column = KeyValues(
        np.array([12, 10, 11]), lambda wanted: np.array(sorted(keys[key] for key in wanted if key in keys), np.int64)
    )
    for text, expected in {"key == 'b'": [0, 0, 1], "key not in ('a', 'x')": [1, 0, 1], "key != 'zz'": [1, 1, 1]}.items():
        assert evaluate(bind_expression(parse_expression(text), {}), {"key": column}, 3).tolist() == list(
            map(bool, expected)
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("yaer > 3", "The index has no column yaer; did you mean year?"),
        ("qqqq > 3", "The index has no column qqqq; choose from label, key, year, title, day"),
        ("year == '2020'", "year is a number; compare it with a number, not with '2020'"),
        ("title > 3", "title is a text; compare it with a text in quotes, not with 3"),
        ("day > 3", "day is a date; compare it with an ISO date in quotes"),
        ("day > 'May'", "day is a column of dates; 'May' is not an ISO date"),
        ("label < 'cat'", "label is compared with ==, != and in; < has no meaning for it"),
        ("label == 3", "label is a text"),
        ("year < None", "test for it with year == None or year != None"),
        ("year in (1, None)", "test for it with year == None or year != None"),
        ("key == None", "None is a missing value"),
    ],
)
def test_wrong_names_and_types_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        bind_expression(parse_expression(text), {"year": "number", "title": "text", "day": "date"})


@given(
    dtype=st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float32, np.float64]),
    count=st.integers(0, 300),
    ends=st.tuples(st.integers(0, 120), st.integers(0, 120)).map(sorted),
)
def test_marked_values_are_those_in_the_span(dtype: type, count: int, ends: list[int]) -> None:
    values: NDArray[Any] = np.random.default_rng(count).integers(0, 121, count).astype(dtype)
    if dtype in (np.int8, np.int16, np.int32, np.int64):
        values[::3] *= -1
    words = np.zeros(-(-count // 64), np.uint64)
    mark_span(values, values.dtype.type(ends[0]), values.dtype.type(ends[1]), words)
    np.testing.assert_array_equal(unpack_bits(words, count), (values >= ends[0]) & (values <= ends[1]))
