"""Random filter expressions, and a reference that evaluates them item by item."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from proxyhash.columns import ColumnType, parse_date, to_microseconds
from proxyhash.index.where.expression import And, Comparison, Constant, Expression, Not, Or

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, constants: value in constants,
    "not in": lambda value, constants: value not in constants,
}
TEXTS = ["cat", "dog", "", "é%_\\", "it's", 'a "cat', "zebra", "Cat", "🐈"]
DATES = ["1970-01-01", "2024-05-31", "2024-05-31T12:30:00Z", "2024-05-31 14:30:00+02:00", "1999-12-31"]
NUMBERS = [0, 1, -1, 2, 255, 256, 2**31, 2**53, 2**53 + 1, 2**63, 10**30, 0.5, -2.5, 1e300, 2.0]


def comparisons(types: Mapping[str, ColumnType]) -> st.SearchStrategy[Expression]:
    """Return random comparisons of labels and columns."""

    def one(name: str) -> st.SearchStrategy[Expression]:
        pools: dict[str, list[Any]] = {"number": NUMBERS, "text": TEXTS, "date": DATES}
        pool = pools[types.get(name, "text")]
        operators = ["==", "!=", "in", "not in"] if name in ("label", "labels") else list(COMPARE)

        def with_operator(chosen: str) -> st.SearchStrategy[Expression]:
            constants: st.SearchStrategy[Any] = st.sampled_from(pool)
            if chosen.endswith("in"):
                constants = st.lists(constants, min_size=1, max_size=7).map(tuple)
            elif chosen in ("==", "!="):
                constants = constants | st.none()
            return constants.map(lambda value: Comparison(name, chosen, value))

        return st.sampled_from(operators).flatmap(with_operator)

    return st.sampled_from(["label", "labels", *types]).flatmap(one)


def expressions(types: Mapping[str, ColumnType]) -> st.SearchStrategy[Expression]:
    """Return random expressions over labels and columns."""
    return st.recursive(
        comparisons(types),
        lambda inner: (
            inner.map(Not)
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))
        ),
        max_leaves=6,
    )


def to_text(expression: Expression) -> str:
    """Return an expression as a user writes it."""
    if isinstance(expression, Not):
        return f"not ({to_text(expression.operand)})"
    if isinstance(expression, Comparison):
        name = expression.name if expression.name.isidentifier() else "`" + expression.name.replace("`", "``") + "`"
        if isinstance(expression.value, tuple):
            return f"{name} {expression.operator} ({', '.join(map(_constant, expression.value))})"
        return f"{name} {expression.operator} {_constant(expression.value)}"
    word = " and " if isinstance(expression, And) else " or "
    return word.join(f"({to_text(operand)})" for operand in expression.operands)


def _constant(value: Constant) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def keeps(  # noqa: PLR0911  one for each kind of expression
    expression: Expression, labels: Sequence[str], row: Mapping[str, Any], types: Mapping[str, ColumnType]
) -> bool:
    """Return whether an expression keeps an item; a missing value is absent from its row, or None."""
    if isinstance(expression, Not):
        return not keeps(expression.operand, labels, row, types)
    if isinstance(expression, And):
        return all(keeps(operand, labels, row, types) for operand in expression.operands)
    if isinstance(expression, Or):
        return any(keeps(operand, labels, row, types) for operand in expression.operands)
    constants: Any = expression.value
    if expression.name in ("label", "labels"):
        if constants is None:
            return bool(labels) == (expression.operator == "!=")
        return bool(set(labels) & set(expression.values)) != (expression.operator in ("!=", "not in"))
    value = row.get(expression.name)
    if constants is None:
        return (value is not None) == (expression.operator == "!=")
    if value is None:
        return False
    if types[expression.name] == "date":
        value = to_microseconds(value)
        converted = tuple(to_microseconds(parse_date(text, "")) for text in expression.values)
        constants = converted if isinstance(constants, tuple) else converted[0]
    return COMPARE[expression.operator](value, constants)
