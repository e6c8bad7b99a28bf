"""Columns of tables of pyarrow that hold one number, text or date for each item."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxyhash.columns import RESERVED, ColumnType
from proxyhash.utils.errors import InputError


def column_type(kind: Any) -> ColumnType | None:
    """Return the type of a column from its type in pyarrow; None if it holds something else.

    Examples
    --------
    >>> import pyarrow
    >>> column_type(pyarrow.int8()), column_type(pyarrow.list_(pyarrow.int8()))
    ('number', None)
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        return column_type(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    return "date" if types.is_date(kind) or types.is_timestamp(kind) else None


def choose_columns(path: Path, schema: Any, used: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Return the columns of a table that items get: those that are wanted, or all with a type that fits.

    Parameters
    ----------
    path
        The table, for messages.
    schema
        Its schema.
    used
        Columns that are used for something else, such as keys.
    wanted
        Names; None: all columns that are not used otherwise, without those whose names have another meaning.

    Raises
    ------
    InputError
        If a column that is wanted does not exist, or holds something else than numbers, texts and dates.
    """
    if wanted is None:
        names = [name for name in schema.names if name not in used and name.lower() not in RESERVED]
        return [name for name in names if name.strip() and column_type(schema.field(name).type) is not None]
    for name in wanted:
        if name not in schema.names:
            raise InputError(f"{path} has no column {name}; it has {', '.join(schema.names)}.")
        if column_type(schema.field(name).type) is None:
            raise InputError(f"{path}: the column {name} holds {schema.field(name).type}, not numbers, texts or dates.")
    return list(wanted)


def column_values(column: Any) -> list[Any]:
    """Return the values of a column as Python objects, None where one is missing.

    Examples
    --------
    >>> import pyarrow
    >>> column_values(pyarrow.array([1, None]))
    [1, None]
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return list(column.to_pylist())
