"""What is known of each item beside its code: key, labels, and the file it came from."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proxyhash.index.item_ids import Starts
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError

_AT_ONCE = 10_000  # values in one question to SQLite


@dataclass(frozen=True)
class FileFacts:
    """By which a file is known to be unchanged: its size, and when it was modified (nanoseconds)."""

    size: int
    modified: int


class Item(NamedTuple):
    """One item as it is stored."""

    position: int
    key: str
    labels: tuple[str, ...] = ()
    path: Path | None = None  # of its file; None if its code came without one
    root: Path | None = None  # the folder that the file was found in


Labels = Sequence[Sequence[str] | str | None]


def insert(
    store: Store,
    positions: range,
    keys: Sequence[str],
    labels: Labels | None,
    source: int | None = None,
    files: Sequence[FileFacts] | None = None,
) -> None:
    """Store new items; a key that is there already makes SQLite raise an IntegrityError."""
    texts = [None] * len(keys) if labels is None else labels_as_text(labels)
    if files is None:
        rows: Iterable[tuple[object, ...]] = zip(positions, keys, texts, strict=True)
        store.insert("items(position, key, labels)", rows)
    else:
        sizes, times = (file.size for file in files), (file.modified for file in files)
        store.insert("items", zip(positions, keys, texts, repeat(source, len(keys)), sizes, times, strict=True))


def positions_of(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Return the positions of those keys that are there."""
    found: dict[str, int] = {}
    for part in _parts(list(keys)):
        statement = f"SELECT key, position FROM items WHERE key IN ({_marks(part)})"
        found.update((key, position) for key, position in store.rows(statement, *part))
    return found


def items_at(store: Store, positions: Iterable[int]) -> dict[int, Item]:
    """Return the items at some positions; those that were removed meanwhile are missing."""
    found: dict[int, Item] = {}
    for part in _parts(sorted({int(position) for position in positions})):
        statement = (
            "SELECT position, key, labels, path, prefix FROM items LEFT JOIN sources ON source = number "
            f"WHERE position IN ({_marks(part)})"
        )
        for position, key, labels, path, prefix in store.rows(statement, *part):
            root = None if path is None else Path(path)
            file = None if root is None else root / key[len(prefix) :]
            found[position] = Item(position, key, labels_from(labels), file, root)
    return found


class RememberedItems:
    """Items as they were when they were last found, until the index changes or there are too many of them."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._state: tuple[int, dict[int, Item]] = (-1, {})  # the index's generation when they were read, and they

    def at(self, positions: set[int], generation: int) -> Mapping[int, Item]:
        """Return the items at some positions, and perhaps others; those that were removed meanwhile are missing."""
        then, known = self._state
        missing = positions - known.keys()
        if then != generation or len(known) + len(missing) > self._most:
            known, missing = {}, positions
        if missing:
            known.update(items_at(self._store, missing))
        if len(known) <= self._most:
            self._state = generation, known
        return known


def delete(store: Store, positions: Starts) -> None:
    """Delete items."""
    store.run_many("DELETE FROM items WHERE position = ?", ((int(position),) for position in positions))


def source_number(store: Store, path: Path, prefix: str) -> int:
    """Return the number of a folder that items come from; a new one is stored."""
    store.run("INSERT OR IGNORE INTO sources(path, prefix) VALUES (?, ?)", str(path), prefix)
    return int(store.value("SELECT number FROM sources WHERE path = ? AND prefix = ?", str(path), prefix))


def files_of(store: Store, path: Path, prefix: str) -> dict[str, FileFacts]:
    """Return the keys that came from a folder, and their files' facts as they were then."""
    statement = "SELECT key, size, modified FROM items JOIN sources ON source = number WHERE path = ? AND prefix = ?"
    return {key: FileFacts(size, modified) for key, size, modified in store.rows(statement, str(path), prefix)}


def check_keys(keys: Sequence[str], count: int) -> None:
    """Refuse keys that cannot name `count` items."""
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
    """Refuse to remove anything if one of the keys is unknown."""
    missing = sorted({key for key in keys if key not in found})
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(f"The index has no item {missing[0]}{more}; nothing was removed.")


def check_labels(labels: Labels | None, count: int) -> None:
    """Refuse labels of another number of items."""
    if labels is not None and len(labels) != count:
        raise InputError(f"{count:,} items need as many labels, not {len(labels):,}.")


def labels_as_text(labels: Labels) -> list[str | None]:
    """Return labels as JSON, each combination made into text once."""
    known: dict[Sequence[str] | str | None, str | None] = {None: None, "": None, (): None}
    texts = []
    for label in labels:
        key = label if isinstance(label, str) or label is None else tuple(label)
        if key not in known:
            known[key] = json.dumps([key] if isinstance(key, str) else key, ensure_ascii=False)
        texts.append(known[key])
    return texts


@lru_cache(4096)  # a search finds the same few labels again and again
def labels_from(text: str | None) -> tuple[str, ...]:
    """Return labels from their text."""
    return tuple(json.loads(text)) if text else ()


def _parts(values: list[str] | list[int]) -> Iterable[list[str] | list[int]]:
    return (values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
