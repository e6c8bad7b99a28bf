"""Columns of items: values of one type for each item, such as a year, a title or the day of a photograph."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.text import valid_text
from proxyhash.utils.validation import shorten

ColumnType = Literal["number", "text", "date"]
ColumnsLike = Mapping[str, "Sequence[Any] | NDArray[Any]"]
"""Values of each column by its name: numbers, texts, dates, or None where an item has no value."""

RESERVED = ("key", "label", "labels", "code", "path")  # names that filters and exported files give another meaning
MAX_NAME_LENGTH = 200  # characters
MAX_TEXT_BYTES = 65_535  # of a value, in UTF-8
_EXACT = 2**53  # whole numbers up to this are exact as float64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].+)?")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class UntypedTexts(tuple[str | None, ...]):
    """Values of a column as a CSV file has them: numbers, dates and texts are told apart when they are read."""


@dataclass(frozen=True, eq=False)
class Column:
    """n values of one type; `known` (n,) is False where a value is missing.

    `values` (n,) are int64 or float64 for numbers, int64 microseconds since 1970 in UTC for dates, and objects for texts.
    """

    type: ColumnType
    values: NDArray[Any]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return n."""
        return len(self.values)

    def select(self, rows: "slice | NDArray[Any]") -> "Column":
        """Return some of the values."""
        return Column(self.type, self.values[rows], self.known[rows])

    def to_list(self) -> list[Any]:
        """Return the values as Python objects, None where one is missing."""
        values = self.values.tolist()
        if self.type == "date":
            values = [from_microseconds(value) for value in values]
        return [value if known else None for value, known in zip(values, self.known.tolist(), strict=True)]


def check_columns(given: ColumnsLike, count: int, types: Mapping[str, ColumnType] | None = None) -> dict[str, Column]:
    """Return columns with checked names and values.

    Parameters
    ----------
    given
        Values of `count` items by the name of the column.
    count
        Number of items.
    types
        Types of the columns that exist already.

    Returns
    -------
    dict of Column
        The columns in the order of their names; a new column without any value is left out.

    Raises
    ------
    InputError
        For a name that cannot be used, another number of values than items, or a value of another type than its column's.

    Examples
    --------
    >>> check_columns({"year": [2020, None]}, 2)["year"].known.tolist()
    [True, False]
    """
    if not isinstance(given, Mapping):
        raise InputError(f"Columns are a mapping of names to values, not {type(given).__name__}.")
    for name in given:
        check_name(name)
    types, out = types or {}, {}
    for name in sorted(given):
        column = make_column(name, given[name], types.get(name))
        if len(column) != count:
            raise InputError(f"{count:,} items need as many values of the column {name}, not {len(column):,}.")
        if column.known.any():
            out[name] = column
    return out


def check_name(name: object) -> None:
    """Raise an InputError unless a column may have this name."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_LENGTH or valid_text(name) != name:
        raise InputError(f"The name of a column is a text of 1 to {MAX_NAME_LENGTH} characters, not {shorten(name)}.")
    if name.lower() in RESERVED:
        raise InputError(f"A column may not be called {name}, which means something else; choose another name.")


def make_column(name: str, values: "Sequence[Any] | NDArray[Any]", type: ColumnType | None = None) -> Column:
    """Return values as a column of a type; None: the type of the values.

    None, NaN and NaT are missing values. True and False are the numbers 1 and 0. A date without a time is midnight, and one
    without a time zone is in UTC. Texts in a column of dates are read as ISO dates.

    Raises
    ------
    InputError
        If a value has another type than the column, or than the other values.

    Examples
    --------
    >>> make_column("day", ["2024-05-31"], "date").to_list()
    [datetime.datetime(2024, 5, 31, 0, 0, tzinfo=datetime.timezone.utc)]
    """
    if isinstance(values, UntypedTexts):
        return _parse_texts(name, values, type)
    if isinstance(values, str | bytes):
        raise InputError(f"The column {name} needs a sequence of values, one for each item, not one text.")
    if not isinstance(values, list | tuple):
        array = np.asarray(values)
        if array.ndim != 1:
            raise InputError(f"The column {name} needs values (N,), not of shape {array.shape}.")
        column = _from_array(name, array)
        if column is not None:
            return _convert(name, column, type)
        values = array.tolist()
    return _convert(name, _from_objects(name, list(values), type), type)


def _from_array(name: str, array: NDArray[Any]) -> Column | None:
    """Return an array of numbers or times as a column; None for texts and objects."""
    if array.dtype.kind in "biu":
        if array.dtype.kind == "u" and array.max(initial=0) >= 2**63:
            raise InputError(f"The column {name} holds {array.max()}; whole numbers are below 2^63.")
        return Column("number", array.astype(np.int64), np.ones(len(array), np.bool_))
    if array.dtype.kind == "f":
        return _floats(name, array.astype(np.float64))
    if array.dtype.kind == "M":
        known = ~np.isnat(array)
        return _check_dates(name, np.where(known, array.astype("M8[us]").astype(np.int64), 0), known)
    return None


def _from_objects(name: str, values: Sequence[Any], type: ColumnType | None) -> Column:
    """Return Python objects as a column; all that are not missing have one type."""
    known = np.array([not _is_missing(value) for value in values], np.bool_)
    kinds = {_kind_of(name, value) for value, is_known in zip(values, known, strict=True) if is_known}
    if kinds == {"text"} and type == "date":
        values, kinds = [None if value is None else parse_date(value, name) for value in values], {"date"}
    if len(kinds) > 1 and kinds != {"whole", "fraction"}:
        found = " and ".join(sorted("number" if kind in ("whole", "fraction") else kind for kind in kinds))
        raise InputError(f"The column {name} holds values of several types, {found}; give one type.")
    if not kinds:
        return _nothing(len(values), type)
    filled = [value if is_known else None for value, is_known in zip(values, known, strict=True)]
    if kinds == {"text"}:
        return Column("text", _texts(name, filled), known)
    if kinds == {"date"}:
        return _check_dates(name, np.array([0 if one is None else to_microseconds(one) for one in filled], np.int64), known)
    if kinds == {"whole"}:
        numbers = [0 if value is None else int(value) for value in filled]
        if wrong := next((number for number in numbers if not -(2**63) <= number < 2**63), None):
            raise InputError(f"The column {name} holds {shorten(wrong)}; whole numbers are below 2^63.")
        return Column("number", np.array(numbers, np.int64), known)
    for value in filled:
        if isinstance(value, int | np.integer) and abs(int(value)) > _EXACT:
            raise InputError(f"The column {name} holds fractions, and {shorten(value)}, which is not exact as a float.")
    return _floats(name, np.array([math.nan if value is None else float(value) for value in filled]))


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return True
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


def _kind_of(name: str, value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | np.integer | np.bool_):
        return "whole"
    if isinstance(value, float | np.floating):
        return "fraction"
    if isinstance(value, date | np.datetime64):
        return "date"
    raise InputError(f"The column {name} holds a {type(value).__name__}; values are numbers, texts, dates or None.")


def _convert(name: str, column: Column, type: ColumnType | None) -> Column:
    """Return a column if it has the type that is wanted."""
    if type is not None and column.type != type:
        if not column.known.any():
            return _nothing(len(column), type)
        raise InputError(f"{name} is a column of {type}s; give it {type}s, not {column.type}s.")
    return column


def _nothing(count: int, type: ColumnType | None) -> Column:
    """Return a column without any value."""
    values = np.full(count, None, object) if type == "text" else np.zeros(count, np.int64)
    return Column(type or "number", values, np.zeros(count, np.bool_))


def _floats(name: str, values: NDArray[np.float64]) -> Column:
    known = ~np.isnan(values)
    if np.isinf(values).any():
        raise InputError(f"The column {name} holds an infinite number; give None for a missing value.")
    return Column("number", np.where(known, values, 0.0) + 0.0, known)  # + 0.0: -0.0 becomes 0.0


def _texts(name: str, values: Iterable[str | None]) -> NDArray[Any]:
    """Return texts as an array of objects, after a check of each."""
    out = []
    for value in values:
        if value is not None:
            if valid_text(value) != value:
                raise InputError(f"The column {name} holds {shorten(value)}, which is not valid text.")
            if 4 * len(value) > MAX_TEXT_BYTES and len(value.encode()) > MAX_TEXT_BYTES:
                raise InputError(f"A text has at most {MAX_TEXT_BYTES:,} bytes; the column {name} holds a longer one.")
        out.append(None if value is None else str(value))
    array = np.empty(len(out), object)
    array[:] = out
    return array


def _check_dates(name: str, values: NDArray[np.int64], known: NDArray[np.bool_]) -> Column:
    if ((values < _FIRST) | (values > _LAST)).any():
        raise InputError(f"The column {name} holds a date that is not in the years 1 to 9999.")
    return Column("date", values, known)


def _parse_texts(name: str, texts: UntypedTexts, type: ColumnType | None) -> Column:
    """Return texts of a file as the type of the column, or as the first type that fits all; empty ones are missing."""
    filled = [None if text is None or not text.strip() else text.strip() for text in texts]
    given = [text for text in filled if text is not None]
    if type is None:
        is_number, is_date = all(map(_NUMBER.fullmatch, given)), all(map(_is_date, given))
        type = "number" if is_number else "date" if is_date else "text"
    if type == "number":
        return make_column(name, [None if text is None else _parse_number(text, name) for text in filled], "number")
    return make_column(name, filled, type)


def _parse_number(text: str, name: str) -> int | float:
    if _NUMBER.fullmatch(text) is None or len(text) > 400:
        raise InputError(f"{name} is a column of numbers, and {shorten(text)} is not a number.")
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def _is_date(text: str) -> bool:
    try:
        parse_date(text, "")
    except InputError:
        return False
    return True


def parse_date(text: object, name: str) -> datetime:
    """Return the time that an ISO date or datetime states, in UTC; anything else is an InputError that names the column."""
    try:
        if isinstance(text, str) and _ISO_DATE.fullmatch(text):
            return from_microseconds(to_microseconds(datetime.fromisoformat(text)))
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{name} is a column of dates; {shorten(text)} is not an ISO date such as '2024-05-31'.")


def to_microseconds(value: "date | np.datetime64") -> int:
    """Return the microseconds since 1970 in UTC of a date or a time; one without a time zone is in UTC."""
    if isinstance(value, np.datetime64):
        return int(value.astype("M8[us]").astype(np.int64))
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the time so many microseconds after 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=value)


def to_json_value(value: Any) -> Any:
    """Return a value of a column for JSON: a date as text, such as 2024-05-31T00:00:00Z.

    Examples
    --------
    >>> to_json_value(from_microseconds(0)), to_json_value(7)
    ('1970-01-01T00:00:00Z', 7)
    """
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
