"""Workloads over an index, and what must be left of it after a loss of power.

python -m helpers.power.index_workloads NAME ROOT [ARGUMENTS OF THE WORKLOAD]
"""

import errno
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.codes import clustered_codes, make_keys
from helpers.index_content import array_content, kept_content
from helpers.power.recording import SYNC, Check, Mark, acknowledge, arm, disarm
from helpers.power.replay import digest, read_tree
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import compact, verify
from proxyhash.utils.errors import InputError

BITS = 64


def contents(index: LocalIndex) -> dict[str, list[Any]]:
    """Return code and labels of every item by its key, as a search returns them."""
    query = np.zeros((1, (index.bits + 7) // 8), np.uint8)
    matches = index.range_search(query, index.bits, with_codes=True, threads=1)[0]
    return {match.key: [match.code.hex() if match.code else "", list(match.labels)] for match in matches}


def check_index(folder: Path, before: Sequence[Mark], following: Mark | None, bits: int = BITS) -> None:
    """Check that an index is as it was acknowledged, or as the next step leaves it, and that it can be written."""
    possible = [each["items"] for each in (*before[-1:], following) if each is not None]
    if not before:  # not even its creation was acknowledged: it can be repeated
        possible.append({})
    with LocalIndex.open_folder(folder / "i", bits=None if before else bits) as index:
        assert not (problems := verify(index).problems), problems
        found = contents(index)
        in_doubt = {key for mark in (*before[-1:], following) if mark for key in mark.get("in_doubt", ())}
        certain = {key: value for key, value in found.items() if key not in in_doubt}
        assert certain in possible, _difference(certain, possible)
        index.add(np.zeros((1, (index.bits + 7) // 8), np.uint8), ["after the cut"])
        assert not (problems := verify(index).problems), f"after another write: {problems}"
        assert {key: value for key, value in contents(index).items() if key != "after the cut"} == found


def _difference(found: dict[str, Any], possible: list[dict[str, Any]]) -> str:
    parts = [
        f"{len(set(state) - set(found))} lost, {len(set(found) - set(state))} too many, "
        f"{sum(found[key] != state[key] for key in set(found) & set(state))} different"
        for state in possible
    ]
    return f"{len(found)} items; compared with each possible state: {'; '.join(parts)}"


class Steps:
    """An index and the steps of a workload; each is acknowledged with the items that the index holds after it."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        self.folder = folder
        self.items: dict[str, list[Any]] = {}
        self.vectors: dict[str, list[float]] | None = None  # that are kept
        self.arrays: dict[str, dict[str, list[Any]]] | None = None  # rows of arrays by name and key
        self.index = LocalIndex.open_folder(folder, **arguments)

    def done(self) -> None:
        state = {"items": self.items, "vectors": self.vectors, "arrays": self.arrays}
        acknowledge(**{name: content for name, content in state.items() if content is not None})

    def add(self, count: int, first: int, seed: int) -> None:
        codes, keys = clustered_codes(count, BITS // 8, seed), make_keys(count, first)
        labels = [(f"label {seed}",) for _ in keys]
        self.index.add(codes, keys, labels)
        self.items |= {
            key: [code.tobytes().hex(), list(label)] for key, code, label in zip(keys, codes, labels, strict=True)
        }
        self.done()

    def remove(self, count: int, first: int) -> None:
        keys = make_keys(count, first)
        self.index.remove(keys)
        for key in keys:
            del self.items[key]
        self.done()

    def compact(self) -> None:
        compact(self.index)
        self.done()

    def reopen(self) -> None:
        self.index.close()
        self.index = LocalIndex.open_folder(self.folder)
        self.done()


def small(root: Path) -> None:
    """Create, add, replace, remove, compact, and close."""
    steps = Steps(root / "i", bits=BITS)
    steps.done()
    steps.add(20, 0, 0)
    steps.add(20, 10, 1)  # ten are replaced
    steps.remove(5, 3)
    steps.compact()
    steps.add(5, 40, 2)
    steps.reopen()
    steps.remove(5, 40)
    steps.index.close()


def large(root: Path) -> None:
    """Repeat writes with a reader beside, so that the log is restarted, and without one, so that it is deleted."""
    steps = Steps(root / "i", bits=BITS)
    steps.done()
    steps.add(60, 0, 0)
    with LocalIndex.open_folder(root / "i") as reader:
        contents(reader)
        for turn in range(1, 9):
            steps.add(40, 1000 * turn, turn)
            steps.remove(20, 1000 * turn + 5)
            contents(reader)
            if turn % 3 == 0:
                steps.reopen()
                steps.index.store.run("PRAGMA wal_autocheckpoint = 4")
        steps.compact()
    for turn in range(9, 13):
        steps.add(200, 1000 * turn, turn)
        steps.add(80, 1000 * turn + 150, 100 + turn)  # 50 are replaced
        steps.remove(170, 1000 * turn)
        steps.compact()
        steps.reopen()
    steps.remove(60, 0)
    steps.compact()
    steps.index.close()


def write_shards(folder: Path) -> None:
    """Write the shards that `shards` imports."""
    from proxyhash.models.code_shards import CodeShard, write_shard

    for number in range(4):
        codes, keys = clustered_codes(30, BITS // 8, number), make_keys(30, 100 * number)
        write_shard(folder, CodeShard(codes, keys, [("a", "b")] * 30, BITS, "none", "none", number, 4))


def shards(root: Path) -> None:
    """Import shards one by one, then all again."""
    from proxyhash.index.code_import import add_shards, find_shards

    steps = Steps(root / "i", bits=BITS)
    steps.done()
    paths = find_shards([root / "shards"])
    for number, path in enumerate(paths):
        add_shards(steps.index, [path])
        codes = clustered_codes(30, BITS // 8, number)
        keys = make_keys(30, 100 * number)
        steps.items |= {key: [code.tobytes().hex(), ["a", "b"]] for key, code in zip(keys, codes, strict=True)}
        steps.done()
    add_shards(steps.index, paths)
    steps.done()
    steps.index.close()


def upgraded(root: Path, model: str, other_model: str, photos: str) -> None:
    """Create an index with a model, add a folder, move to another model, and write again."""
    from proxyhash.data import SkippedItems
    from proxyhash.index.folder_sync import add_folder
    from proxyhash.index.upgrade import upgrade
    from proxyhash.models.hasher import Hasher

    steps = Steps(root / "i", model=Path(model))
    steps.done()
    add_folder(steps.index, Path(photos), SkippedItems())
    steps.items = contents(steps.index)
    steps.done()
    upgrade(steps.index, Hasher.load(other_model), SkippedItems())
    steps.items = contents(steps.index)
    steps.done()
    key = sorted(steps.items)[0]
    steps.index.remove([key])
    del steps.items[key]
    steps.done()
    upgrade(steps.index, Hasher.load(model), SkippedItems())
    steps.items = contents(steps.index)
    steps.compact()
    steps.index.close()


def kept_vectors(root: Path, model: str, file: str) -> None:
    """Add a file of vectors and keep them, in several transactions and blocks; remove, replace, compact, and close."""
    from proxyhash.data.vectors import read_vectors
    from proxyhash.index.local import array_blocks, transactions
    from proxyhash.index.vector_sync import add_vectors

    array_blocks.BYTES_PER_BLOCK, transactions.ARRAY_BYTES_PER_TRANSACTION = 8 * 4 * 12, 20 * 4 * 12
    steps, vectors = Steps(root / "i", model=Path(model)), np.load(file)
    kept = steps.vectors = {}
    steps.done()

    def on_progress(work: str, _: float) -> None:
        if work == "adding vectors":
            state(slice(0, len(steps.index)))

    def state(rows: slice) -> None:
        steps.items = contents(steps.index)
        kept.update({f"v.npy:{row}": vectors[row].tolist() for row in range(len(vectors))[rows]})
        steps.done()

    add_vectors(steps.index, read_vectors(file), keep_vectors=True, progress=on_progress)
    for keys in (["v.npy:3"], [f"v.npy:{row}" for row in range(10, 30)]):
        steps.index.remove(keys)
        for key in keys:
            del steps.items[key], kept[key]
        steps.done()
    steps.index.add(vectors[10:20], [f"v.npy:{row}" for row in range(10, 20)], keep_vectors=True)
    state(slice(10, 20))
    steps.compact()
    steps.index.close()


def arrays(root: Path) -> None:
    """Add items with several arrays, in blocks of a few rows; replace, remove, write an array again, compact, and close."""
    from proxyhash.index.local import array_blocks, item_arrays
    from proxyhash.index.local.transactions import ItemBatch, add_batch

    array_blocks.ROWS_PER_BLOCK = 8
    steps = Steps(root / "i", bits=BITS)
    rows = steps.arrays = {"array:price": {}, "refinement": {}}
    steps.done()

    def add(count: int, first: int) -> None:
        codes, keys = clustered_codes(count, BITS // 8, first), make_keys(count, first)
        prices, refined = np.arange(first, first + count)[:, None], np.full((count, 3), first, np.int8)
        added: dict[str, np.ndarray] = {"array:price": prices, "refinement": refined}
        add_batch(steps.index.store, ItemBatch(steps.index.store.codes_id, codes, keys, arrays=added))
        steps.items = contents(steps.index)
        for name, values in added.items():
            rows[name] |= dict(zip(keys, values.tolist(), strict=True))
        steps.done()

    add(20, 0)
    add(30, 10)  # ten are replaced
    steps.index.remove(make_keys(7, 20))
    steps.items = contents(steps.index)
    steps.arrays = rows = {
        name: {key: row for key, row in each.items() if key in steps.items} for name, each in rows.items()
    }
    steps.done()
    store = steps.index.store
    item_ids = item_arrays.row_ids(store, "refinement")
    with store.writing():
        item_arrays.delete_array(store, "refinement")
        item_arrays.append_rows(store, "refinement", item_ids, np.full((len(item_ids), 2), 99, np.uint8), {"scale": 2})
    rows["refinement"] = {key: [99, 99] for key in steps.items}
    steps.done()
    steps.compact()
    steps.index.close()


def check_arrays(folder: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that an index holds the rows of its items in every array, as they were acknowledged."""
    if before:
        with LocalIndex.open_folder(folder / "i") as index:
            keys = {item.item_id: item.key for item in index.list_items(limit=1000)}
            found = {
                name: {keys[item_id]: row.tolist() for item_id, row in rows.items()}
                for name, rows in array_content(index).items()
            }
        states = [mark["arrays"] for mark in (*before[-1:], following) if mark is not None]
        assert found in [{name: rows for name, rows in state.items() if rows} for state in states]
        check_index(folder, before, following)


def check_kept_vectors(folder: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that an index holds the vectors of its items, as they were acknowledged."""
    if before:
        with LocalIndex.open_folder(folder / "i") as index:
            keys = {item.item_id: item.key for item in index.list_items(limit=1000)}
            found = {keys[item_id]: vector.tolist() for item_id, vector in kept_content(index).items()}
        assert found in [mark["vectors"] for mark in (*before[-1:], following) if mark is not None]
        check_index(folder, before, following)


def migrated(root: Path, expected: str) -> None:
    """Open an index of release 0.1, which moves it to the format of today, and write to it; it holds the expected items."""
    items = json.loads(Path(expected).read_text())
    acknowledge(items=items)
    steps = Steps(root / "i")
    steps.items = items
    steps.done()
    first = sorted(items)[0]
    code = steps.index.code(first)
    steps.index.add(code, ["new"], [("a",)])
    steps.items["new"] = [code.tobytes().hex(), ["a"]]
    steps.done()
    steps.reopen()
    steps.index.remove([first])
    del steps.items[first]
    steps.done()
    steps.compact()
    steps.index.close()


def failing(root: Path) -> None:
    """Add while fsyncs fail now and then; an item whose addition was refused is in doubt."""
    steps, in_doubt = Steps(root / "i", bits=BITS), set[str]()
    steps.done()
    for turn in range(12):
        keys, codes = make_keys(15, 100 * turn), clustered_codes(15, BITS // 8, turn)
        arm(SYNC, 1 + turn % 4, errno.EIO)
        try:
            steps.index.add(codes, keys, [("a",)] * 15)
        except InputError:
            in_doubt |= set(keys)
        else:
            steps.items |= {key: [code.tobytes().hex(), ["a"]] for key, code in zip(keys, codes, strict=True)}
        finally:
            disarm()
        acknowledge(items=steps.items, in_doubt=sorted(in_doubt))
    steps.index.close()


def backed_up(root: Path) -> None:
    """Back up an index while it grows; the backup is acknowledged by its name."""
    from proxyhash.index.backup import backup

    steps = Steps(root / "i", bits=BITS)
    steps.add(40, 0, 0)
    for turn in range(1, 4):
        backup(steps.index, root / "backup")
        acknowledge(items=steps.items, backup=steps.items)
        steps.add(10, 100 * turn, turn)
    steps.index.close()


def check_backup(
    folder: Path,
    before: Sequence[Mark],
    following: Mark | None,
    read: Callable[[LocalIndex], dict[str, Any]] = contents,
    check: Check = check_index,
) -> None:
    """Check that the backup can be restored to what was acknowledged, or to what the next step writes, and the index."""
    acknowledged = [mark["backup"] for mark in before if "backup" in mark]
    possible = acknowledged[-1:] + ([following["backup"]] if following and "backup" in following else [])
    if acknowledged or (folder / "backup").exists():
        found = _restored(folder, read)
        assert found is not None or not acknowledged, "the backup cannot be restored"
        assert found is None or found in possible, _difference(found, possible)
    check(folder, before, following)


_RESTORED: dict[bytes, dict[str, Any] | None] = {}  # by the digest of a backup: most cuts leave the same


def _restored(folder: Path, read: Callable[[LocalIndex], dict[str, Any]]) -> dict[str, Any] | None:
    """Return what a backup holds, read from a restored copy that is whole; None if it is refused."""
    from proxyhash.index.backup import restore

    number = digest(read_tree(folder / "backup"))
    if number not in _RESTORED:
        try:
            restore(folder / "backup", folder / "restored")
        except InputError:
            _RESTORED[number] = None
        else:
            with LocalIndex.open_folder(folder / "restored") as index:
                assert not (problems := verify(index).problems), problems
                _RESTORED[number] = read(index)
    return _RESTORED[number]


WORKLOADS = {
    each.__name__: each for each in (small, large, shards, upgraded, kept_vectors, arrays, migrated, failing, backed_up)
}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
