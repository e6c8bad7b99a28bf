"""Labels and columns of items as one JSON field of Milvus, and filter expressions over it.

The field holds for each column `x` its value `v:x` and its type `t:x`, for each label `y` an entry `l:y`, and `labels` if
there is one. A comparison by `!=` is true for an entry that is missing. So every filter can be written without `not`, which
milvus-lite does not know, and without a search inside of texts, which servers before 2.4 do not know.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from proxyhash.columns import Column, ColumnType, from_microseconds, parse_date, to_microseconds
from proxyhash.index.local.items import Item, Labels, labels_from_json
from proxyhash.index.milvus.collection import ATTRIBUTES
from proxyhash.index.milvus.rows import parse_path, parse_root, quote_key, unquote_key
from proxyhash.index.where.binding import KEY, LABEL
from proxyhash.index.where.expression import And, Comparison, Constant, Expression, Not, Or
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import MILVUS_ITEM_ID

MAX_ATTRIBUTE_BYTES = 65_535
_VALUE, _TYPE, _LABEL, _HAS_LABELS = "v:", "t:", "l:", "labels"
_COMPLEMENTS = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def make_attributes(keys: Sequence[str], labels: Labels | None, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Return the field of each item from its labels and columns; one that Milvus cannot hold is an InputError."""
    attributes: list[dict[str, Any]] = [{} for _ in keys]
    for entries, given in zip(attributes, labels or (), strict=labels is not None):
        names = (given,) if given and isinstance(given, str) else given or ()
        entries.update({f"{_LABEL}{quote(name)}": 1 for name in names}, **({_HAS_LABELS: 1} if names else {}))
    for name, column in columns.items():
        for entries, value, is_known in zip(attributes, column.values.tolist(), column.known.tolist(), strict=True):
            if is_known:
                entries.update({f"{_VALUE}{quote(name)}": value, f"{_TYPE}{quote(name)}": column.type})
    for key, entries in zip(keys, attributes, strict=True):
        if len(json.dumps(entries)) > MAX_ATTRIBUTE_BYTES:
            raise InputError(
                f"The labels and columns of {key} have more than {MAX_ATTRIBUTE_BYTES:,} bytes, the limit of Milvus."
            )
    return attributes


def parse_columns(attributes: Any) -> dict[str, Any]:
    """Return the columns of an item from its field."""
    fields = json.loads(attributes) if isinstance(attributes, str | bytes) else attributes or {}
    columns = {}
    for name, kind in fields.items():
        if name.startswith(_TYPE):
            value = fields[f"{_VALUE}{name.removeprefix(_TYPE)}"]
            columns[unquote(name.removeprefix(_TYPE))] = from_microseconds(value) if kind == "date" else value
    return columns


def parse_item(row: dict[str, Any]) -> Item:
    """Return an item from a stored row."""
    key, labels = unquote_key(row["key"]), labels_from_json(row["labels"])
    path, root = parse_path(row["file"]), parse_root(row["file"], key)
    return Item(row[MILVUS_ITEM_ID], key, labels, path, root, columns=parse_columns(row.get(ATTRIBUTES)))


def parse_types(attributes: Any) -> dict[str, ColumnType]:
    """Return the types of the columns of an item from its field."""
    fields = json.loads(attributes) if isinstance(attributes, str | bytes) else attributes or {}
    return {unquote(name.removeprefix(_TYPE)): kind for name, kind in fields.items() if name.startswith(_TYPE)}


def to_condition(expression: Expression, *, negated: bool = False) -> str:
    """Return an expression, or its negation, in the language of Milvus.

    Milvus does not know the types of columns: a text is compared with texts, and if it is an ISO date, with dates.

    Examples
    --------
    >>> print(to_condition(Comparison("year", ">", 2020)))
    (attributes["t:year"] == "number" and attributes["v:year"] > 2020)
    >>> print(to_condition(Comparison("label", "!=", "cat")))
    attributes["l:cat"] != 1
    """
    if isinstance(expression, Not):
        return to_condition(expression.operand, negated=not negated)
    if isinstance(expression, And | Or):
        parts = [to_condition(operand, negated=negated) for operand in expression.operands]
        return _join("and" if isinstance(expression, And) != negated else "or", parts)
    name = LABEL if expression.name == "labels" else expression.name
    if name == KEY:
        return _keys(expression, negated)
    return _labels(expression, negated) if name == LABEL else _column(expression, negated)


def _keys(comparison: Comparison, negated: bool) -> str:
    is_equal = (comparison.operator in ("==", "in")) != negated
    operator, word = ("==", "or") if is_equal else ("!=", "and")
    return _join(word, [f"{KEY} {operator} {_text(quote_key(str(value)))}" for value in comparison.values])


def _labels(comparison: Comparison, negated: bool) -> str:
    if comparison.value is None:
        return f"{_entry(_HAS_LABELS)} {'==' if (comparison.operator == '!=') != negated else '!='} 1"
    has_label = (comparison.operator in ("==", "in")) != negated
    operator, word = ("==", "or") if has_label else ("!=", "and")
    return _join(word, [f"{_entry(_LABEL + quote(str(label)))} {operator} 1" for label in comparison.values])


def _column(comparison: Comparison, negated: bool) -> str:
    """Return a comparison of a column; the negation of one is true where the value is missing."""
    if comparison.value is None:
        is_known = (comparison.operator == "!=") != negated
        kinds = [f"{_type(comparison)} {'==' if is_known else '!='} {_text(kind)}" for kind in ("number", "text", "date")]
        return _join("or" if is_known else "and", kinds)
    operator = {"in": "==", "not in": "!="}.get(comparison.operator, comparison.operator)
    by_type: dict[str, list[str]] = {}
    for value in comparison.values:
        for kind, constant in _typed(value):
            by_type.setdefault(kind, []).append(
                f"{_entry(_VALUE + quote(comparison.name))} {_COMPLEMENTS[operator] if negated else operator} {constant}"
            )
    parts = []
    for kind, tests in by_type.items():
        inner = _join("or" if (comparison.operator == "not in") == negated else "and", tests)
        parts.append(
            _join("or" if negated else "and", [f"{_type(comparison)} {'!=' if negated else '=='} {_text(kind)}", inner])
        )
    return _join("and" if negated else "or", parts)


def _typed(value: Constant) -> list[tuple[str, str]]:
    """Return the types of columns that a constant may be compared with, and the constant for each."""
    if not isinstance(value, str):
        return [("number", repr(value))]
    try:
        return [("text", _text(value)), ("date", str(to_microseconds(parse_date(value, ""))))]
    except InputError:
        return [("text", _text(value))]


def _type(comparison: Comparison) -> str:
    return _entry(_TYPE + quote(comparison.name))


def _entry(name: str) -> str:
    return f'{ATTRIBUTES}["{name}"]'


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _join(word: str, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + f" {word} ".join(parts) + ")"
