"""Items of an index: key, labels, and the file that each came from."""

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.schema import item_checksum, source_checksum
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError, KeyNotFoundError

_VALUES_PER_QUERY = 10_000  # in one statement of SQLite
MAX_KEY_BYTES = 65_535  # in UTF-8
MAX_LABEL_BYTES = 1_000_000  # of all labels of an item, as JSON

Labels = Sequence[Sequence[str] | str | None]
"""Labels of items: one label, several, or None for each."""


class FileStat(NamedTuple):  # a frozen dataclass takes several times as long to make, and a file of vectors has millions
    """Size and modification time (nanoseconds) of a file; a file with both unchanged is not encoded again.

    `row` is the row of a vector in its file, None for an image.
    """

    size: int
    mtime_ns: int
    row: int | None = None


@dataclass(frozen=True)
class Source:
    """A folder of images or a file of vectors that items come from, and the prefix of their keys.

    `vector_column` is the column of vectors, if the file is a table.
    """

    path: Path
    prefix: str = ""
    vector_column: str | None = None


class Item(NamedTuple):  # a frozen dataclass takes twice as long to make, and a batch of queries makes thousands
    """One item of an index.

    Attributes
    ----------
    item_id
        Number that the item was given when it was added; a replaced item has another one.
    key
        Key of the item.
    labels
        Labels or tags of the item.
    path
        File that the item was added from; None for a code without a file.
    root
        Folder that the file was found in.
    row
        Row of the vector in its file; None for an image.
    columns
        Values of its columns by name; those that it lacks are absent.

    Examples
    --------
    >>> Item(7, "cats/7.jpg", ("cat",)).labels
    ('cat',)
    """

    item_id: int
    key: str
    labels: tuple[str, ...] = ()
    path: Path | None = None
    root: Path | None = None
    row: int | None = None
    columns: Mapping[str, Any] = MappingProxyType({})

    @property
    def has_image(self) -> bool:
        """Return whether the item was added from an image file."""
        return self.path is not None and self.row is None


class ItemRow(NamedTuple):
    """One row of the table `items`, without its checksum."""

    item_id: int
    key: str
    labels: str | None
    source: int | None
    size: int | None
    mtime_ns: int | None
    file_row: int | None = None

    @property
    def file_stat(self) -> FileStat:
        """Return size and time of the file."""
        return FileStat(self.size or 0, self.mtime_ns or 0, self.file_row)


COLUMNS = ", ".join((*ItemRow._fields, "items.checksum"))
_NUM_FIELDS = len(ItemRow._fields)
_TIME = "ifnull(mtime_ns, 'None') || ifnull(':' || file_row, '')"
_OPTIONAL = f"ifnull(source, 'None'), ifnull(size, 'None'), {_TIME}, ifnull(labels, 'None')"
_ROW_TEXT = f"printf('%d|%s|%s|%s|%s|%s', item_id, {_OPTIONAL}, key)"  # the text that `item_checksum` is the CRC-32 of


def insert_items(
    store: Store,
    item_ids: range,
    keys: Sequence[str],
    labels: Labels | None,
    source: int | None = None,
    files: Sequence[FileStat] | None = None,
) -> None:
    """Store new items; a key that exists makes SQLite raise an IntegrityError."""
    texts: Sequence[str | None] = [None] * len(keys) if labels is None else labels_to_json(labels)
    if files is None:
        checksums = [item_checksum(*row, None, None, None) for row in zip(item_ids, keys, texts, strict=True)]
        store.insert("items(item_id, key, labels, checksum)", zip(item_ids, keys, texts, checksums, strict=True))
        return
    rows = [
        ItemRow(item_id, key, text, source, file.size, file.mtime_ns, file.row)
        for item_id, key, text, file in zip(item_ids, keys, texts, files, strict=True)
    ]
    insert_rows(store, rows)


def insert_rows(store: Store, rows: Iterable[ItemRow]) -> None:
    """Store rows of the table."""
    store.insert(f"items({', '.join(ItemRow._fields)}, checksum)", ((*row, item_checksum(*row)) for row in rows))


def checked_row(store: Store, row: tuple[Any, ...]) -> ItemRow:
    """Return a row of the table, read by `COLUMNS`, without its checksum, if it matches that."""
    if item_checksum(*row[:_NUM_FIELDS]) != row[_NUM_FIELDS]:
        store.raise_damaged(f"item {row[0]} does not match its checksum")
    return ItemRow(*row[:_NUM_FIELDS])


def rows_by_key(store: Store, keys: Iterable[str]) -> list[ItemRow]:
    """Return the rows of those keys that exist."""
    found = []
    for part in _chunks(list(keys)):
        statement = f"SELECT {COLUMNS} FROM items WHERE key IN ({_marks(part)})"
        found += [checked_row(store, row) for row in store.rows(statement, *part)]
    return found


def rows_by_id(store: Store, item_ids: Iterable[int]) -> list[ItemRow]:
    """Return the rows of those ids that exist, ascending."""
    found = []
    for part in _chunks(sorted(int(item_id) for item_id in item_ids)):
        statement = f"SELECT {COLUMNS} FROM items WHERE item_id IN ({_marks(part)}) ORDER BY item_id"
        found += [checked_row(store, row) for row in store.rows(statement, *part)]
    return found


def ids_by_key(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Return the item ids of those keys that exist."""
    return {row.key: row.item_id for row in rows_by_key(store, keys)}


def find_ids(store: Store, keys: Sequence[str]) -> dict[str, int]:
    """Return the item ids of those keys that exist.

    Keys that are not found are looked for in the table as well, because a damaged index of keys may lack them.
    """
    found = ids_by_key(store, keys)
    missing = [key for key in dict.fromkeys(keys) if key not in found]
    for part in _chunks(missing):
        for (key,) in store.rows(f"SELECT key FROM items NOT INDEXED WHERE key IN ({_marks(part)})", *part):
            store.raise_damaged(f"the index of keys lacks {key}")
    return found


def require_ids(store: Store, keys: Sequence[str], consequence: str = "") -> dict[str, int]:
    """Return the item ids of keys, all of which must exist; the error message ends with the consequence."""
    found = find_ids(store, keys)
    check_found(keys, found, consequence)
    return found


def check_found(keys: Sequence[str], found: Container[str], consequence: str = "; nothing was removed") -> None:
    """Raise a KeyNotFoundError if some keys were not found; the message ends with the consequence."""
    missing = [key for key in dict.fromkeys(keys) if key not in found]
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise KeyNotFoundError(f"The index has no item {missing[0]}{more}{consequence}.")


def all_ids(store: Store) -> UInt32s:
    """Return the ids of all items, ascending."""
    return np.array([row[0] for row in store.rows("SELECT item_id FROM items ORDER BY item_id")], np.uint32)


def verify_items(store: Store) -> tuple[UInt32s, list[str]]:
    """Read all items; return the ids of those that match their checksums, ascending, and what is wrong with the others."""
    intact, wrong, sources = [], [], list_sources(store)
    for row in store.each(f"SELECT {COLUMNS} FROM items ORDER BY item_id"):
        if item_checksum(*row[:_NUM_FIELDS]) != row[_NUM_FIELDS]:
            wrong.append(f"Item {row[0]} does not match its checksum.")
        elif row[3] is not None and row[3] not in sources:
            wrong.append(f"The folder of item {row[0]} is missing.")
        else:
            intact.append(row[0])
    return np.array(intact, np.uint32), wrong


def items_by_id(store: Store, item_ids: Iterable[int]) -> dict[int, Item]:
    """Return items by their ids; those that do not exist are missing."""
    found: dict[int, Item] = {}
    for part in _chunks(sorted({int(item_id) for item_id in item_ids})):
        rows = store.rows(f"{_SELECT_ITEMS} WHERE item_id IN ({_marks(part)})", *part)
        found.update((row[0], _parse_item(store, row)) for row in rows)
    return found


def items_after(store: Store, key: str, limit: int) -> list[Item]:
    """Return the first items whose keys come after a key, in the order of keys, which is that of their code points."""
    with store.reading():
        rows = store.rows(f"{_SELECT_ITEMS} WHERE key > ? ORDER BY key LIMIT ?", key, limit)
        if len(rows) < limit:  # the end: a damaged index of keys may have less than all
            lacking = store.active_info().num_codes - store.value("SELECT count(*) FROM items WHERE key > ''")
            if lacking:
                store.raise_damaged(f"the index of keys lacks {lacking:,} items")
    return [_parse_item(store, row) for row in rows]


_SELECT_ITEMS = (
    f"SELECT {COLUMNS}, path, prefix, vector_column, sources.checksum FROM items LEFT JOIN sources ON source = number"
)


def _parse_item(store: Store, row: tuple[Any, ...]) -> Item:
    """Return an item from a row of `_SELECT_ITEMS`, if the rows of item and folder match their checksums."""
    item, (path, prefix, column, checksum) = checked_row(store, row), row[_NUM_FIELDS + 1 :]
    labels = labels_from_json(item.labels)
    if item.source is None:
        return Item(item.item_id, item.key, labels)
    if _source_checksum(item.source, path, prefix, column) != checksum:
        store.raise_damaged(f"the folder of item {item.item_id} is missing or does not match its checksum")
    if item.file_row is not None:
        return Item(item.item_id, item.key, labels, Path(path), Path(path).parent, item.file_row)
    root = Path(path)
    return Item(item.item_id, item.key, labels, root / item.key[len(prefix) :], root)


def count_items(store: Store) -> int:
    """Return the number of rows of items."""
    return int(store.value("SELECT count(*) FROM items NOT INDEXED"))


def check_rows_from(store: Store, first_id: int) -> None:
    """Compare the rows of all items from an id on with their checksums.

    SQLite computes the checksums, which takes half the time of reading the rows. It ends a text at a null character, so that
    a row that differs is compared again.
    """
    statement = f"SELECT {COLUMNS} FROM items WHERE item_id >= ? AND crc32(CAST({_ROW_TEXT} AS BLOB)) IS NOT checksum"
    for row in store.each(statement, first_id):
        checked_row(store, row)


class ItemCache:
    """Up to `max_size` items that were found before. It is emptied when the index changes or it is full.

    `find` returns items by their ids; None: `items_by_id`.
    """

    def __init__(
        self, store: Store, max_size: int, find: "Callable[[Store, set[int]], dict[int, Item]] | None" = None
    ) -> None:
        self._store, self._max_size, self._find = store, max_size, find or items_by_id
        self._state: tuple[tuple[int, int], dict[int, Item]] = ((-1, -1), {})  # the state of the index, and its items

    def __len__(self) -> int:
        """Return the number of cached items."""
        return len(self._state[1])

    def get(self, item_ids: set[int], generation: int) -> Mapping[int, Item]:
        """Return the items of some ids, and perhaps others, in a transaction that sees this generation."""
        cached_state, items = self._state
        state = self._store.times_opened, generation  # a restored file may have the same generation
        missing = item_ids - items.keys()
        if cached_state != state or len(items) + len(missing) > self._max_size:
            items, missing = {}, item_ids
        if missing:
            items.update(self._find(self._store, missing))
        if len(items) <= self._max_size:
            self._state = state, items
        return items


def delete_items(store: Store, item_ids: UInt32s) -> None:
    """Delete items."""
    store.run_many("DELETE FROM items WHERE item_id = ?", ((int(item_id),) for item_id in item_ids))


def add_source(store: Store, source: Source) -> int:
    """Return the number of a folder that items come from; a new one is stored."""
    found = find_source(store, source)
    if found is not None:
        return found
    number = int(store.value("SELECT coalesce(max(number), 0) + 1 FROM sources"))
    insert_source(store, number, (str(source.path), source.prefix, source.vector_column))
    return number


def insert_source(store: Store, number: int, values: tuple[str, str, str | None]) -> None:
    """Store path, prefix and column of vectors of a folder or file."""
    columns = "number, path, prefix, vector_column, checksum"
    store.run(f"INSERT INTO sources({columns}) VALUES (?, ?, ?, ?, ?)", number, *values, source_checksum(number, *values))


def find_source(store: Store, source: Source) -> int | None:
    """Return the number of a folder that items come from, None if it is not stored."""
    wanted = (str(source.path), source.prefix)
    for number, (path, prefix, column) in list_sources(store).items():
        if (path, prefix) == wanted:
            if column != source.vector_column:
                raise InputError(f"{path} was added before with the column {column}; give the keys another --prefix.")
            return number
    return None


def list_sources(store: Store) -> dict[int, tuple[str, str, str | None]]:
    """Return path, prefix and column of vectors of every folder or file that items come from, by number."""
    rows = store.rows("SELECT number, path, prefix, vector_column, checksum FROM sources ORDER BY number")
    for number, *values, checksum in rows:
        if _source_checksum(number, *values) != checksum:
            store.raise_damaged(f"folder {number} does not match its checksum")
    return {number: (path, prefix, column) for number, path, prefix, column, _ in rows}


_source_checksum = lru_cache(1024)(source_checksum)  # many items come from the same folder


def files_of_source(store: Store, source: Source) -> dict[str, FileStat]:
    """Return the keys that came from a folder, with size and time of their files as they were then."""
    statement = f"SELECT {COLUMNS} FROM items JOIN sources ON source = number WHERE path = ? AND prefix = ?"
    rows = (checked_row(store, row) for row in store.rows(statement, str(source.path), source.prefix))
    return {row.key: row.file_stat for row in rows}


def check_keys(keys: Sequence[str], count: int) -> None:
    """Raise an InputError unless the keys can name `count` items."""
    if len(keys) != count:
        raise InputError(f"{count:,} codes need as many keys, not {len(keys):,}.")
    try:
        "".join(keys).encode()
    except TypeError:
        raise InputError("Keys must be texts.") from None
    except UnicodeEncodeError as error:
        raise InputError(f"A key must be valid text: {error.reason}.") from None
    if not all(keys):
        raise InputError("A key may not be empty.")
    if 4 * max(map(len, keys), default=0) > MAX_KEY_BYTES:  # a character has up to four bytes
        longest = max(keys, key=lambda key: len(key.encode()))
        if len(longest.encode()) > MAX_KEY_BYTES:
            raise InputError(f"A key has at most {MAX_KEY_BYTES:,} bytes; {longest[:50]}... has {len(longest.encode()):,}.")
    hashes = np.sort(np.fromiter(map(hash, keys), np.int64, len(keys)))
    if (hashes[1:] == hashes[:-1]).any() and len(set(keys)) < len(keys):
        twice = sorted(keys)
        first = next(key for key, following in pairwise(twice) if key == following)
        raise InputError(f"Each key may occur once in what is added; {first} occurs twice.")


def check_labels(labels: Labels | None, count: int) -> None:
    """Raise an InputError unless there are labels for `count` items, or None."""
    if labels is not None and len(labels) != count:
        raise InputError(f"{count:,} items need as many labels, not {len(labels):,}.")


def labels_to_json(labels: Labels) -> list[str | None]:
    """Return labels as JSON, each combination serialized once."""
    texts: dict[Sequence[str] | str | None, str | None] = {None: None, "": None, (): None}
    out = []
    for label in labels:
        key = label if isinstance(label, str) or label is None else tuple(label)
        if key not in texts:
            texts[key] = text = json.dumps([key] if isinstance(key, str) else key, ensure_ascii=False)
            if len(text) > MAX_LABEL_BYTES // 4 and len(text.encode()) > MAX_LABEL_BYTES:
                raise InputError(f"The labels of an item have at most {MAX_LABEL_BYTES:,} bytes; {text[:50]}... have more.")
        out.append(texts[key])
    return out


@lru_cache(4096)  # searches find the same few labels again and again
def labels_from_json(text: str | None) -> tuple[str, ...]:
    """Return labels from JSON."""
    return tuple(json.loads(text)) if text else ()


def _chunks(values: list[str] | list[int]) -> Iterable[list[str] | list[int]]:
    return (values[first : first + _VALUES_PER_QUERY] for first in range(0, len(values), _VALUES_PER_QUERY))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
