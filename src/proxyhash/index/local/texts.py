"""Texts of columns: a table with one row for each different text of all columns, and its code.

Columns store codes. A code is never given to another text, so that texts that no item has any more can be deleted.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.schema import row_checksum
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError

MAX_CODE = 2**32 - 1
_VALUES_PER_QUERY = 10_000  # in one statement of SQLite
TEXT_COLUMNS = "code, value, checksum"
_INDEX = "sqlite_autoindex_texts_1"  # SQLite's name of the index of the unique column
_CHECKED: WeakKeyDictionary[Store, int] = WeakKeyDictionary()  # how often a store was opened when its index was checked


def add_texts(store: Store, texts: Sequence[str]) -> UInt32s:
    """Return the codes of texts (n,); those that are new are stored. In a transaction."""
    different = list(dict.fromkeys(texts))
    codes, first = _codes_by_text(store, different), store.meta().next_text
    new = {text: first + number for number, text in enumerate(text for text in different if text not in codes)}
    if first + len(new) > MAX_CODE:
        raise InputError(f"An index holds at most {MAX_CODE:,} different texts in its columns.")
    if new:
        insert_texts(store, ((code, text) for text, code in new.items()))
        store.set_meta(next_text=first + len(new))
    codes |= new
    return np.fromiter((codes[text] for text in texts), np.uint32, len(texts))


def find_codes(store: Store, texts: Sequence[str]) -> list[int]:
    """Return the codes of those of some texts that are stored."""
    return list(_codes_by_text(store, list(dict.fromkeys(texts))).values())


def _codes_by_text(store: Store, texts: list[str]) -> dict[str, int]:
    codes: dict[str, int] = {}
    for part in _chunks(texts):
        statement = f"SELECT {TEXT_COLUMNS} FROM texts WHERE value IN ({', '.join('?' * len(part))})"
        codes.update((text, code) for code, text in _checked(store, store.rows(statement, *part)))
    if len(codes) < len(texts):
        _check_index(store)
    return codes


def _check_index(store: Store) -> None:
    """Raise if the index of texts differs from the table: then texts that are stored are not found.

    This reads all texts, so it is done once for each file that is opened.
    """
    if _CHECKED.get(store) == store.times_opened:
        return
    sums = "SELECT count(*), sum(crc32(CAST(code || ' ' || value AS BLOB))) FROM texts"
    if store.rows(f"{sums} NOT INDEXED") != store.rows(f"{sums} INDEXED BY {_INDEX}"):
        store.raise_damaged("the index of texts differs from the texts")
    _CHECKED[store] = store.times_opened


def insert_texts(store: Store, rows: Iterable[tuple[int, str]]) -> None:
    """Store codes and their texts."""
    store.insert(f"texts({TEXT_COLUMNS})", ((code, text, row_checksum(code, text)) for code, text in rows))


def find_texts(store: Store, codes: Iterable[int]) -> dict[int, str]:
    """Return the texts of some codes; an InputError if one is missing or does not match its checksum."""
    wanted = sorted({int(code) for code in codes})
    found: dict[int, str] = {}
    for part in _chunks(wanted):
        statement = f"SELECT {TEXT_COLUMNS} FROM texts WHERE code IN ({', '.join('?' * len(part))})"
        found.update(_checked(store, store.rows(statement, *part)))
    if len(found) < len(wanted):
        store.raise_damaged(f"{len(wanted) - len(found):,} texts of columns are missing")
    return found


def delete_unused(store: Store, used: UInt32s) -> None:
    """Delete all texts but those with some codes, given ascending."""
    codes = np.array([code for (code,) in store.rows("SELECT code FROM texts")], np.uint32)
    unused = np.setdiff1d(codes, used)
    store.run_many("DELETE FROM texts WHERE code = ?", ((int(code),) for code in unused))


def verify_texts(store: Store, used: UInt32s) -> list[str]:
    """Read all texts; return what is wrong with them, or lacking for the codes that columns have."""
    problems, found, next_text = [], [], store.meta().next_text
    for code, text, checksum in store.each(f"SELECT {TEXT_COLUMNS} FROM texts"):
        if row_checksum(code, text) != checksum or not isinstance(text, str) or code >= next_text:
            problems.append(f"The text with code {code} does not match its checksum.")
        else:
            found.append(code)
    if len(missing := np.setdiff1d(used, np.array(found, np.uint32))):
        problems.append(f"{len(missing):,} texts of columns are missing.")
    return problems


def _checked(store: Store, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, str]]:
    for code, text, checksum in rows:
        if row_checksum(code, text) != checksum:
            store.raise_damaged(f"the text with code {code} does not match its checksum")
        yield code, text


def _chunks(values: list[Any]) -> Iterator[list[Any]]:
    return (values[first : first + _VALUES_PER_QUERY] for first in range(0, len(values), _VALUES_PER_QUERY))
