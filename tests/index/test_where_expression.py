"""Parser of filter expressions."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.filters import expressions, to_text
from proxyhash.index.where.expression import MAX_DEPTH, And, Comparison, Not, Or, parse_expression
from proxyhash.index.where.tokens import MAX_LENGTH
from proxyhash.utils.errors import InputError


@given(expressions({"year": "number", "title": "text", "the `day`": "date"}))
def test_expression_is_read_as_it_was_written(expression: object) -> None:
    text = to_text(expression)  # type: ignore[arg-type]
    assert to_text(parse_expression(text)) == text


def test_and_binds_stronger_than_or_and_not_strongest() -> None:
    found = parse_expression("not a == 1 and b == 2 or c == 3")
    assert found == Or((And((Not(Comparison("a", "==", 1)), Comparison("b", "==", 2))), Comparison("c", "==", 3)))


@pytest.mark.parametrize(
    ("text", "operator"),
    [("3 < x", ">"), ("3 <= x", ">="), ("3 == x", "=="), ("3 > x", "<"), ("3 >= x", "<="), ("3 != x", "!=")],
)
def test_constant_may_stand_first(text: str, operator: str) -> None:
    assert parse_expression(text) == Comparison("x", operator, 3)


def test_literals_are_read() -> None:
    assert parse_expression("x in [1, -2.5, 1e3, 'a', \"b\", True, False,]") == Comparison(
        "x", "in", (1, -2.5, 1000.0, "a", "b", 1, 0)
    )
    assert parse_expression(r"x == 'it\'s a \\ \"'") == Comparison("x", "==", "it's a \\ \"")
    assert parse_expression("`a ``b` == None") == Comparison("a `b", "==", None)
    assert parse_expression("größe\n<\t2") == Comparison("größe", "<", 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "needs the name of a column at character 1, but it ends there"),
        ("year = 3", "at character 6, but found =; write == to compare"),
        ("year >", "needs a number, a text in quotes, or None at character 7, but it ends there"),
        ("year > and", "at character 8, but found and"),
        ("year 3", "needs a comparison such as ==, < or in at character 6, but found 3"),
        ("(year > 3", r"needs and, or, or \) at character 10, but it ends there"),
        ("year > 3)", "needs and, or, or the end of the filter at character 9"),
        ("1 < year < 3", "at character 10, but found <"),
        ("x in ()", r"needs a number, a text in quotes, or None at character 7, but found \)"),
        ("x in 'a'", r"needs a list such as \('a', 'b'\) at character 6, but found 'a'"),
        ("x in ('a' 'b')", r"needs a comma or \) at character 11, but found 'b'"),
        ("x in ('a']", r"needs a comma or \) at character 10"),
        ("x not 3", "needs in at character 7, but found 3"),
        ("x == 'cat", "has a quote ' at character 6 that is not closed"),
        (r"x == 'a\n'", r"has \\n; a backslash stands before a quote or another backslash"),
        ("and == 3", "needs the name of a column at character 1, but found and"),
        ("x == 3abc", "at character 6, but found 3"),
        ("x; DROP TABLE items", "at character 2, but found ;"),
        ("x == 1e999", "number at character 6 of the filter is too large"),
        ("x == " + 5000 * "9", "number at character 6 of the filter is too large"),
        ("x == '\ud800'", "must be valid text"),
        ("x == '" + MAX_LENGTH * "a" + "'", "at most 65,536 characters"),
        ("not " * 60 + "x == 1", f"at most {MAX_DEPTH} parentheses and negations"),
        ("(" * 60 + "x == 1" + ")" * 60, f"at most {MAX_DEPTH} parentheses and negations"),
    ],
)
def test_mistake_is_named_with_its_position(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_expression(text)


def test_filter_that_is_not_a_text_is_refused() -> None:
    with pytest.raises(InputError, match="A filter is a text"):
        parse_expression(3)  # type: ignore[arg-type]


@given(st.text(st.sampled_from("ab1.`'\"\\()[],<>=! -\n") | st.characters(), max_size=30))
def test_any_text_is_an_expression_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        to_text(parse_expression(text))
