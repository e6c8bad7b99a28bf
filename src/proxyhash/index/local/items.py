"""Items of an index: key, labels, and the file that each came from."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import IndexNames as Sql

_VALUES_PER_QUERY = 10_000  # in one statement of SQLite

Labels = Sequence[Sequence[str] | str | None]
"""Labels of items: one label, several, or None for each."""


@dataclass(frozen=True)
class FileStat:
    """Size and modification time (nanoseconds) of a file; a file with both unchanged is not encoded again."""

    size: int
    mtime_ns: int


class Item(NamedTuple):
    """One stored item."""

    item_id: int
    key: str
    labels: tuple[str, ...] = ()
    path: Path | None = None  # of its file; None if its code came without one
    root: Path | None = None  # folder that the file was found in


def insert_items(
    store: Store,
    item_ids: range,
    keys: Sequence[str],
    labels: Labels | None,
    source: int | None = None,
    files: Sequence[FileStat] | None = None,
) -> None:
    """Store new items; a key that exists makes SQLite raise an IntegrityError."""
    texts = [None] * len(keys) if labels is None else labels_to_json(labels)
    if files is None:
        rows: Iterable[tuple[object, ...]] = zip(item_ids, keys, texts, strict=True)
        store.insert(f"items({Sql.ITEM_ID}, key, labels)", rows)
    else:
        sizes, times = (file.size for file in files), (file.mtime_ns for file in files)
        store.insert("items", zip(item_ids, keys, texts, repeat(source, len(keys)), sizes, times, strict=True))


def ids_by_key(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Return the item ids of those keys that exist."""
    found: dict[str, int] = {}
    for part in _chunks(list(keys)):
        statement = f"SELECT key, {Sql.ITEM_ID} FROM items WHERE key IN ({_marks(part)})"
        found.update((key, item_id) for key, item_id in store.rows(statement, *part))
    return found


def all_ids(store: Store) -> UInt32s:
    """Return the ids of all items, ascending."""
    rows = store.rows(f"SELECT {Sql.ITEM_ID} FROM items ORDER BY {Sql.ITEM_ID}")
    return np.array([row[0] for row in rows], np.uint32)


def items_by_id(store: Store, item_ids: Iterable[int]) -> dict[int, Item]:
    """Return items by their ids; those that were removed meanwhile are missing."""
    found: dict[int, Item] = {}
    for part in _chunks(sorted({int(item_id) for item_id in item_ids})):
        statement = (
            f"SELECT {Sql.ITEM_ID}, key, labels, path, prefix FROM items LEFT JOIN sources ON source = number "
            f"WHERE {Sql.ITEM_ID} IN ({_marks(part)})"
        )
        for item_id, key, labels, path, prefix in store.rows(statement, *part):
            root = None if path is None else Path(path)
            file = None if root is None else root / key[len(prefix) :]
            found[item_id] = Item(item_id, key, labels_from_json(labels), file, root)
    return found


class ItemCache:
    """Up to `max_size` items that were found before. It is emptied when the index changes or it is full."""

    def __init__(self, store: Store, max_size: int) -> None:
        self._store, self._max_size = store, max_size
        self._state: tuple[int, dict[int, Item]] = (-1, {})  # the generation of the index, and its items

    def __len__(self) -> int:
        """Return the number of cached items."""
        return len(self._state[1])

    def get(self, item_ids: set[int], generation: int) -> Mapping[int, Item]:
        """Return the items of some ids, and perhaps others; those that were removed meanwhile are missing."""
        cached_generation, items = self._state
        missing = item_ids - items.keys()
        if cached_generation != generation or len(items) + len(missing) > self._max_size:
            items, missing = {}, item_ids
        if missing:
            items.update(items_by_id(self._store, missing))
        if len(items) <= self._max_size:
            self._state = generation, items
        return items


def delete_items(store: Store, item_ids: UInt32s) -> None:
    """Delete items."""
    store.run_many(f"DELETE FROM items WHERE {Sql.ITEM_ID} = ?", ((int(item_id),) for item_id in item_ids))


def add_source(store: Store, path: Path, prefix: str) -> int:
    """Return the number of a folder that items come from; a new one is stored."""
    store.run("INSERT OR IGNORE INTO sources(path, prefix) VALUES (?, ?)", str(path), prefix)
    return int(store.value("SELECT number FROM sources WHERE path = ? AND prefix = ?", str(path), prefix))


def files_of_source(store: Store, path: Path, prefix: str) -> dict[str, FileStat]:
    """Return the keys that came from a folder, with size and time of their files as they were then."""
    columns = f"key, size, {Sql.MTIME_NS}"
    statement = f"SELECT {columns} FROM items JOIN sources ON source = number WHERE path = ? AND prefix = ?"
    return {key: FileStat(size, mtime_ns) for key, size, mtime_ns in store.rows(statement, str(path), prefix)}


def files_by_key(store: Store, keys: Iterable[str]) -> dict[str, tuple[int | None, FileStat]]:
    """Return the number of the folder and the file's size and time of those keys that exist."""
    found: dict[str, tuple[int | None, FileStat]] = {}
    for part in _chunks(list(keys)):
        statement = f"SELECT key, source, size, {Sql.MTIME_NS} FROM items WHERE key IN ({_marks(part)})"
        rows = store.rows(statement, *part)
        found.update((key, (source, FileStat(size, mtime_ns))) for key, source, size, mtime_ns in rows)
    return found


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
    hashes = np.sort(np.fromiter(map(hash, keys), np.int64, len(keys)))
    if (hashes[1:] == hashes[:-1]).any() and len(set(keys)) < len(keys):
        twice = sorted(keys)
        first = next(key for key, following in pairwise(twice) if key == following)
        raise InputError(f"Each key may occur once in what is added; {first} occurs twice.")


def check_found(keys: Iterable[str], found: Container[str]) -> None:
    """Raise an InputError if one of the keys to remove is unknown."""
    missing = sorted({key for key in keys if key not in found})
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(f"The index has no item {missing[0]}{more}; nothing was removed.")


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
            texts[key] = json.dumps([key] if isinstance(key, str) else key, ensure_ascii=False)
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
