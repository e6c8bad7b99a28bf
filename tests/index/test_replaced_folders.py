"""Folders that are replaced by other indexes while they are open."""

import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.models import make_model
from proxyhash import Hasher, Index, InputError
from proxyhash.index.local import items, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import FileStat
from proxyhash.index.local.transactions import ItemBatch, add_batch
from proxyhash.index.maintenance import verify
from proxyhash.utils.errors import IndexChangedError


def swap(folder: Path, other: Path) -> None:
    """Put another folder in the place of an index, which is moved aside."""
    folder.rename(folder.with_name(f"{folder.name}-aside"))
    other.rename(folder)


@pytest.mark.parametrize("transaction", [1, 2])
def test_add_during_which_the_folder_is_replaced_goes_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction: int
) -> None:
    monkeypatch.setattr(transactions, "CODES_PER_TRANSACTION", 10)
    with open_and_copied(tmp_path) as index, LocalIndex.open_folder(tmp_path / "i") as reader:
        swap_after(transaction, "insert_items", tmp_path, monkeypatch)
        assert index.add(clustered_codes(15, 8, 9), make_keys(15, 100)).added == 15
        with LocalIndex.open_folder(tmp_path / "i") as other:
            for opened in (index, reader, other):
                assert sorted(opened.range_search(clustered_codes(1, 8, 0), 64)[0].keys) == make_keys(5) + make_keys(15, 100)
        assert verify(index).problems == ()


def test_remove_during_which_the_folder_is_replaced_goes_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_and_copied(tmp_path) as index, LocalIndex.open_folder(tmp_path / "i") as reader:
        swap_after(1, "delete_items", tmp_path, monkeypatch)
        assert index.remove(make_keys(3)) == 3
        assert [item.key for item in reader.list_items()] == make_keys(2, 3)
        assert verify(index).problems == ()


def open_and_copied(folder: Path) -> LocalIndex:
    """Return an index, with a copy beside it: its identity and its counter of commits do not tell it from the original."""
    index = LocalIndex.open_folder(folder / "i", bits=64)
    index.add(clustered_codes(5, 8, 1), make_keys(5))
    index.store.run("PRAGMA wal_checkpoint(TRUNCATE)")
    subprocess.run(["cp", "-r", folder / "i", folder / "copy"], check=True)  # this process would drop the locks of SQLite
    return index


def swap_after(calls: int, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the folder inside a transaction: after the n-th call of a function."""
    real, numbers = getattr(items, name), count(1)

    def then_swap(*arguments: Any) -> None:
        real(*arguments)
        if next(numbers) == calls:
            swap(folder / "i", folder / "copy")

    monkeypatch.setattr(items, name, then_swap)


def test_codes_are_not_written_to_an_index_of_another_model(tmp_path: Path, model: Path, photos: Path) -> None:
    other = make_model(32, 7, tmp_path / "other-model")
    Index.open(tmp_path / "new", model=other).close()
    with LocalIndex.open_folder(tmp_path / "i", model=model) as index:
        sync = index.folder_sync(photos, "")
        codes = index.hasher.encode([photos / "cats" / "0.png"])
        batch = ItemBatch(index.store.codes_id, codes, ["late"])
        swap(tmp_path / "i", tmp_path / "new")
        with pytest.raises(IndexChangedError, match="was replaced or moved to another model meanwhile"):
            add_batch(index.store, batch)
        with pytest.raises(IndexChangedError, match="was replaced or moved to another model meanwhile"):
            sync.store(codes, ["cats/0.png"], [None], [FileStat(1, 1)])
        assert len(index) == 0
        index.add([photos / "cats" / "0.png"], ["image"])
        np.testing.assert_array_equal(index.code("image"), Hasher.load(other).encode([photos / "cats" / "0.png"]))


def test_searches_and_writes_go_on_while_folders_are_exchanged(tmp_path: Path) -> None:
    """Half of the time there is no index; every answer is that of one folder, and every confirmed item is in one of them."""
    labels = ["first", "second"]
    for name in labels:
        with LocalIndex.open_folder(tmp_path / name, bits=64) as index:
            index.add(clustered_codes(30, 8, 0), make_keys(30), [name] * 30)
    (tmp_path / "first").rename(tmp_path / "i")
    stopped, confirmed, answers = threading.Event(), list[str](), Counter[str]()
    with LocalIndex.open_folder(tmp_path / "i") as opened, ThreadPoolExecutor(3) as pool:

        def write() -> None:
            for number in count():
                if stopped.is_set():
                    return
                with suppress(InputError):
                    opened.add(clustered_codes(1, 8, number), [f"new/{number}"], ["new"])
                    confirmed.append(f"new/{number}")

        def read() -> None:
            while not stopped.is_set():
                with suppress(InputError):
                    found = opened.range_search(clustered_codes(1, 8, 0), 64, labels=labels)[0]
                    (name,) = {match.labels for match in found}
                    assert len(found) == 30
                    answers[name[0]] += 1

        tasks = [pool.submit(task) for task in (write, read, read)]
        until = time.monotonic() + 60
        while (min(answers[name] for name in labels) < 5 or len(confirmed) < 5) and not any(task.done() for task in tasks):
            assert time.monotonic() < until
            (tmp_path / "i").rename(tmp_path / "away")
            (tmp_path / "second").rename(tmp_path / "i")
            (tmp_path / "away").rename(tmp_path / "second")
            time.sleep(0.02)
        stopped.set()
        for task in tasks:
            task.result()
    stored = set[str]()
    for name in ("i", "second"):
        with LocalIndex.open_folder(tmp_path / name) as index:
            stored |= {item.key for item in index.list_items(limit=10**6)}
            assert verify(index).problems == ()
    assert set(confirmed) <= stored
