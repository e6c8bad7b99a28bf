"""Checks of a filter expression against the columns of an index."""

from collections.abc import Mapping

from proxyhash.columns import ColumnType, parse_date, to_microseconds
from proxyhash.index.where.expression import And, Comparison, Constant, Expression, Not, Or
from proxyhash.utils.errors import FilterError, InputError
from proxyhash.utils.registry import suggest
from proxyhash.utils.validation import shorten

LABEL, KEY = "label", "key"
_ALIASES = {"labels": LABEL}
_SET_OPERATORS = ("==", "!=", "in", "not in")  # for labels and keys, which have no order
_KINDS = {"number": "a number", "text": "a text in quotes", "date": "an ISO date in quotes, such as '2024-05-31'"}


def bind_expression(expression: Expression, types: Mapping[str, ColumnType]) -> Expression:
    """Return an expression whose names are columns and whose constants have the types of these columns.

    Parameters
    ----------
    expression
        The expression, from `parse_expression`.
    types
        Types of the columns of the index. `label` and `key` are known besides them.

    Returns
    -------
    Comparison, Not, And or Or
        The same expression; dates are microseconds since 1970, and `labels` is called `label`.

    Raises
    ------
    FilterError
        If a column is unknown, or is compared with a constant of another type.

    Examples
    --------
    >>> from proxyhash.index.where.expression import parse_expression
    >>> bind_expression(parse_expression("day < '1970-01-02'"), {"day": "date"}).value
    86400000000
    """
    if isinstance(expression, Not):
        return Not(bind_expression(expression.operand, types))
    if isinstance(expression, And):
        return And(tuple(bind_expression(operand, types) for operand in expression.operands))
    if isinstance(expression, Or):
        return Or(tuple(bind_expression(operand, types) for operand in expression.operands))
    return _bind_comparison(expression, types)


def _bind_comparison(comparison: Comparison, types: Mapping[str, ColumnType]) -> Comparison:
    name = _ALIASES.get(comparison.name, comparison.name)
    if name in (LABEL, KEY):
        if comparison.operator not in _SET_OPERATORS:
            raise FilterError(
                f"{comparison.name} is compared with ==, != and in; {comparison.operator} has no meaning for it."
            )
        kind: ColumnType = "text"
    elif name in types:
        kind = types[name]
    else:
        raise FilterError(f"The index has no column {comparison.name}; {suggest(comparison.name, [LABEL, KEY, *types])}")
    values = tuple(_bind_value(comparison, value, kind) for value in comparison.values)
    bound = values if isinstance(comparison.value, tuple) else values[0]
    return Comparison(name, comparison.operator, bound, comparison.position)


def _bind_value(comparison: Comparison, value: Constant, kind: ColumnType) -> Constant:
    name = comparison.name
    if value is None:
        if comparison.operator not in ("==", "!=") or name == KEY:
            raise FilterError(f"None is a missing value; test for it with {name} == None or {name} != None.")
        return None
    if kind == "date" and isinstance(value, str):
        return _parse_day(value, name)
    if (kind == "number") == isinstance(value, str) or kind == "date":
        raise FilterError(f"{name} is a {kind}; compare it with {_KINDS[kind]}, not with {shorten(value)}.")
    return value


def _parse_day(text: str, name: str) -> int:
    try:
        return to_microseconds(parse_date(text, name))
    except InputError as error:
        raise FilterError(str(error)) from None
