"""Columns of items: their types, missing values, and mistakes."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.columns import UntypedTexts, check_columns, from_microseconds, make_column, to_json_value, to_microseconds
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize(
    ("given_values", "kind", "values"),
    [
        ([1, None, True], "number", [1, None, 1]),
        ([1, 2.5, None, math.nan], "number", [1.0, 2.5, None, None]),
        (np.array([1, 200], np.uint8), "number", [1, 200]),
        (np.array([0.5, np.nan], np.float32), "number", [0.5, None]),
        (["a", None, ""], "text", ["a", None, ""]),
        (np.array(["a", "bb"]), "text", ["a", "bb"]),
        (np.array(["a", None], object), "text", ["a", None]),
        ([date(2024, 5, 31), None], "date", [datetime(2024, 5, 31, tzinfo=UTC), None]),
        (np.array(["2024-05-31", "NaT"], "M8[D]"), "date", [datetime(2024, 5, 31, tzinfo=UTC), None]),
        ([datetime(2024, 5, 31, 2, tzinfo=timezone(timedelta(hours=2)))], "date", [datetime(2024, 5, 31, tzinfo=UTC)]),
        (UntypedTexts(["1", " 2 ", "", None]), "number", [1, 2, None, None]),
        (UntypedTexts(["1", "2.5"]), "number", [1.0, 2.5]),
        (UntypedTexts(["2024-05-31", "2024-05-31T01:00:00+01:00"]), "date", 2 * [datetime(2024, 5, 31, tzinfo=UTC)]),
        (UntypedTexts(["1", "one"]), "text", ["1", "one"]),
    ],
)
def test_type_and_values_of_a_column(given_values: Any, kind: str, values: list[Any]) -> None:
    column = make_column("x", given_values)
    assert (column.type, column.to_list()) == (kind, values)


@given(st.datetimes(timezones=st.just(UTC)))
def test_dates_survive_as_microseconds(time: datetime) -> None:
    assert from_microseconds(to_microseconds(time)) == time
    assert make_column("x", [to_json_value(time)], "date").to_list() == [time]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_survive(values: list[int | None]) -> None:
    assert make_column("x", values).to_list() == values


@pytest.mark.parametrize(
    ("values", "kind", "sentence"),
    [
        ([1, "a"], None, "values of several types, number and text"),
        ([1, date(2024, 1, 1)], None, "values of several types, date and number"),
        (["a"], "number", "x is a column of numbers; give it numbers, not texts"),
        ([1], "text", "x is a column of texts; give it texts, not numbers"),
        ([1], "date", "x is a column of dates; give it dates, not numbers"),
        (["soon"], "date", "'soon' is not an ISO date"),
        (UntypedTexts(["one"]), "number", "'one' is not a number"),
        ([2**63], None, "whole numbers are below 2\\^63"),
        (np.array([2**63], np.uint64), None, "whole numbers are below 2\\^63"),
        ([2**60, 0.5], None, "not exact as a float"),
        ([math.inf], None, "infinite"),
        ([b"a"], None, "holds a bytes"),
        ([{}], None, "holds a dict"),
        (["\ud800"], None, "not valid text"),
        (["a" * 70_000], None, "at most 65,535 bytes"),
        ("text", None, "a sequence of values"),
        (np.zeros((2, 2)), None, "of shape"),
        (np.array(["20000-01-01"], "M8[D]"), None, "years 1 to 9999"),
    ],
)
def test_wrong_values_are_refused(values: Any, kind: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_column("x", values, kind)


@pytest.mark.parametrize("name", ["", " ", "label", "Labels", "key", "code", "path", "a" * 201, "\ud800", 3])
def test_wrong_names_are_refused(name: Any) -> None:
    with pytest.raises(InputError, match=r"The name of a column|A column may not be called"):
        check_columns({name: [1]}, 1)


def test_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(InputError, match="2 items need as many values of the column x, not 1"):
        check_columns({"x": [1]}, 2)
    with pytest.raises(InputError, match="a mapping"):
        check_columns([1], 1)  # type: ignore[arg-type]


def test_column_without_values_is_left_out() -> None:
    assert list(check_columns({"x": [None, None], "y": [1, None]}, 2)) == ["y"]
    assert make_column("x", [None], "text").to_list() == [None]
