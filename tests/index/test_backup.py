"""Backups of an index: complete, incremental, consistent while others write or are killed; and restoring them."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.index_content import index_content
from helpers.release_0_1 import index_folder
from proxyhash import InputError
from proxyhash.data import SkippedItems
from proxyhash.index.backup import BackupResult, backup, restore
from proxyhash.index.calibration import Calibration
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.blocks import CODES_PER_BLOCK
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.model_store import load_hasher, model_dir
from proxyhash.index.upgrade import upgrade


@pytest.fixture
def index(tmp_path: Path) -> LocalIndex:
    opened = LocalIndex.open_folder(tmp_path / "i", bits=64)
    opened.add(clustered_codes(300, 8, 0), make_keys(300), [f"label {number % 7}" for number in range(300)])
    return opened


def assert_equal(one: LocalIndex, folder: Path) -> None:
    """Compare an index with its backup: content, results, ids."""
    with LocalIndex.open_folder(folder) as copy:
        assert verify(copy).problems == ()
        assert index_content(copy) == index_content(one)
        assert copy.store.meta() == one.store.meta()
        queries = clustered_codes(3, (one.bits + 7) // 8, 77)
        assert copy.search(queries, 20) == one.search(queries, 20)


def test_backup_is_an_index_with_the_same_content(index: LocalIndex, tmp_path: Path) -> None:
    done = backup(index, tmp_path / "b")
    assert_equal(index, tmp_path / "b")
    size = sum(file.stat().st_size for file in (tmp_path / "b").iterdir())
    assert done == BackupResult(300, 300, 0, 1, 0, 0, size)
    assert {child.name for child in tmp_path.iterdir()} == {"i", "b"}


def test_later_backup_copies_only_changes(index: LocalIndex, tmp_path: Path) -> None:
    index.add(clustered_codes(CODES_PER_BLOCK, 8, 1), make_keys(CODES_PER_BLOCK, 300))
    backup(index, tmp_path / "b")
    done = backup(index, tmp_path / "b")
    assert (done.items_copied, done.items_removed, done.blocks_copied, done.blocks_removed) == (0, 0, 0, 0)
    index.remove(make_keys(5, CODES_PER_BLOCK))
    index.add(clustered_codes(3, 8, 2), make_keys(3, CODES_PER_BLOCK + 10))  # replaced: they have new ids
    index.add(clustered_codes(2, 8, 3), ["new", "newer"], ["a", ["b", "c"]])
    done = backup(index, tmp_path / "b")
    assert (done.items_copied, done.items_removed, done.blocks_copied, done.blocks_removed) == (5, 8, 1, 1)
    assert_equal(index, tmp_path / "b")


def test_backup_follows_compaction_and_clusters(index: LocalIndex, tmp_path: Path) -> None:
    index.add(clustered_codes(70_000, 8, 1), make_keys(70_000, 1000))
    backup(index, tmp_path / "b")
    assert_equal(index, tmp_path / "b")
    index.remove(make_keys(60_000, 1000))
    compact(index)
    before = index.bytes_on_disk()
    done = backup(index, tmp_path / "b")
    assert done.items_removed == 60_000
    assert done.bytes_on_disk < 2 * before  # the space of removed items was returned
    assert_equal(index, tmp_path / "b")


def test_model_and_calibration_are_copied_and_renewed(tmp_path: Path, model: Path, other_model: Path, photos: Path) -> None:
    index = LocalIndex.open_folder(tmp_path / "i", model=model)
    add_folder(index, photos, SkippedItems())
    assert backup(index, tmp_path / "b").models_copied == 1
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        assert copy.search(photos / "cats" / "1.png", 1)[0][0].key == "cats/1.png"
        assert copy.calibration is None
    Calibration(np.linspace(1, 0, 33), np.full(33, 5)).save(model_dir(index.folder, str(index.model)))
    assert backup(index, tmp_path / "b").models_copied == 0
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        assert copy.calibration is not None
    upgrade(index, load_hasher(other_model), SkippedItems())
    assert backup(index, tmp_path / "b").models_copied == 1
    assert [child.name for child in (tmp_path / "b" / "models").iterdir()] == [index.model]
    assert_equal(index, tmp_path / "b")


def test_unfinished_upgrade_is_left_out(tmp_path: Path, model: Path, photos: Path) -> None:
    index = LocalIndex.open_folder(tmp_path / "i", model=model)
    add_folder(index, photos, SkippedItems())
    with index.store.writing():
        index.store.start_version(24, "0123456789abcdef", "0" * 64)
    backup(index, tmp_path / "b")
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        assert verify(copy).ok
        assert list(copy.store.list_versions()) == [1]
        assert copy.store.meta().next_version == 3  # the number is not given again


def test_empty_index_can_be_backed_up(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=16) as index:
        backup(index, tmp_path / "b")
        assert_equal(index, tmp_path / "b")
        index.add(np.zeros((1, 2), np.uint8), ["a"])
        assert backup(index, tmp_path / "b").items == 1
        assert_equal(index, tmp_path / "b")


def test_backup_of_another_index_is_refused(index: LocalIndex, tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "other", bits=64) as other:
        other.add(clustered_codes(3, 8, 5), make_keys(3))
        before = index_content(other)
        with pytest.raises(InputError, match="is not a backup of"):
            backup(index, tmp_path / "other")
        assert index_content(other) == before
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").touch()
    with pytest.raises(InputError, match="holds other things than a backup"):
        backup(index, tmp_path / "photos")
    for folder in (tmp_path / "i", tmp_path / "i" / "b", tmp_path):
        with pytest.raises(InputError, match="must be separate folders"):
            backup(index, folder)


def test_backup_that_is_ahead_is_refused(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "b")
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        copy.add(clustered_codes(1, 8, 8), ["only in the backup"])
    with pytest.raises(InputError, match="holds changes that"):
        backup(index, tmp_path / "b")
    index.add(clustered_codes(1, 8, 9), ["only in the index"])
    with pytest.raises(InputError, match="holds changes that"):  # of the same generation, but another
        backup(index, tmp_path / "b")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE items SET key = 'wrong' WHERE item_id = 305",
        "DELETE FROM items WHERE item_id = 4",
        "DELETE FROM items WHERE item_id = 305",
        "UPDATE blocks SET codes = zeroblob(length(codes))",
        "UPDATE blocks SET count = 4",
        "DELETE FROM blocks",
        "UPDATE versions SET bits = 63",
        "UPDATE meta SET value = 3 WHERE name = 'active_version'",
    ],
)
def test_damage_never_replaces_a_backup(index: LocalIndex, tmp_path: Path, damage: str) -> None:
    backup(index, tmp_path / "b")
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        before = index_content(copy)
    index.add(clustered_codes(10, 8, 1), make_keys(10, 300))
    index.close()
    with sqlite3.connect(tmp_path / "i" / FILE) as connection:
        connection.execute(damage)
    connection.close()
    with LocalIndex.open_folder(tmp_path / "b") as copy:
        if "meta" in damage:
            with pytest.raises(InputError, match="damaged"):
                LocalIndex.open_folder(tmp_path / "i")
        else:
            with LocalIndex.open_folder(tmp_path / "i") as damaged, pytest.raises(InputError, match="damaged"):
                backup(damaged, tmp_path / "b")
        assert index_content(copy) == before
        assert verify(copy).ok


def test_damaged_model_never_replaces_a_backup(tmp_path: Path, model: Path) -> None:
    index = LocalIndex.open_folder(tmp_path / "i", model=model)
    backup(index, tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "models")
    weights = model_dir(index.folder, str(index.model)) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"cannot be copied: .*damaged"):
        backup(index, tmp_path / "b")
    assert not (tmp_path / "b" / "models" / str(index.model)).exists()


def test_index_of_release_0_1_can_be_backed_up(tmp_path: Path) -> None:
    with LocalIndex.open_folder(index_folder("clustered-index", tmp_path)) as index:
        backup(index, tmp_path / "b")
        assert_equal(index, tmp_path / "b")


BACKUPS = """
    from pathlib import Path
    from proxyhash.index.backup import backup
    from proxyhash.index.local.index import LocalIndex
    index = LocalIndex.open_folder(Path({folder!r}))
    print("ready", flush=True)
    while True:
        backup(index, Path({destination!r}))
        print("done", flush=True)
"""
WRITER = """
    from pathlib import Path
    from helpers.codes import clustered_codes, make_keys
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.maintenance import compact
    index = LocalIndex.open_folder(Path({folder!r}))
    batch = 0
    while True:
        index.add(clustered_codes(100, 8, batch), make_keys(100, 100 * (batch % 7)))
        batch += 1
        if batch % 5 == 0:
            compact(index)
"""


def start(script: str, **values: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(script).format(**{name: str(value) for name, value in values.items()})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_backups(folder: Path, destination: Path, times: int) -> None:
    """Kill processes that back up an index while another one writes to it, and check the backup each time."""
    random = np.random.default_rng(times)
    writer = start(WRITER, folder=folder)
    last = 0
    try:
        for _ in range(times):
            process = start(BACKUPS, folder=folder, destination=destination)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.uniform(0.0, 0.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
            acknowledged = "done" in process.stdout.read()
            process.stdout.close()
            if not (destination / FILE).exists():
                assert not acknowledged
                assert last == 0
                continue
            with LocalIndex.open_folder(destination) as copy:
                assert verify(copy).problems == ()
                assert len(copy) % 100 == 0  # never part of a batch
                assert copy.store.generation >= last
                last = copy.store.generation
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    with LocalIndex.open_folder(folder) as index:
        backup(index, destination)
        assert_equal(index, destination)
    assert not list(destination.parent.glob(".*"))  # what killed processes left was removed


def test_killed_backup_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(100, 8, 0), make_keys(100))
    kill_backups(tmp_path / "i", tmp_path / "b", 3)


@pytest.mark.slow
def test_many_killed_backups_leave_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(100, 8, 0), make_keys(100))
    kill_backups(tmp_path / "i", tmp_path / "b", 40)


def test_reader_of_a_backup_sees_the_next_one(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "b")
    with LocalIndex.open_folder(tmp_path / "b") as reader:
        assert len(reader.search(clustered_codes(1, 8, 0), 1000)[0]) == 300
        with reader.store.reading():
            assert len(reader) == 300
            index.add(clustered_codes(10, 8, 1), make_keys(10, 300))
            backup(index, tmp_path / "b")
            assert len(reader) == 300
        assert len(reader.search(clustered_codes(1, 8, 0), 1000)[0]) == 310


def test_second_backup_at_the_same_time_is_refused(index: LocalIndex, tmp_path: Path) -> None:
    from proxyhash.index.local.index import UPGRADE_LOCK
    from proxyhash.utils.locks import try_lock

    backup(index, tmp_path / "b")
    with try_lock(tmp_path / "b" / UPGRADE_LOCK), pytest.raises(InputError, match="Another process is writing to"):
        backup(index, tmp_path / "b")


def test_restored_index_has_the_content_and_another_identity(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "b")
    assert restore(tmp_path / "b", tmp_path / "r") == 300
    with LocalIndex.open_folder(tmp_path / "r") as restored:
        assert verify(restored).problems == ()
        assert index_content(restored) == index_content(index)
        restored.add(clustered_codes(1, 8, 5), ["another"])
        with pytest.raises(InputError, match="is not a backup of"):
            backup(restored, tmp_path / "b")


def test_damaged_backup_is_not_restored(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "b")
    with sqlite3.connect(tmp_path / "b" / FILE) as connection:
        connection.execute("UPDATE items SET labels = '[\"wrong\"]' WHERE item_id = 9")
    connection.close()
    with pytest.raises(InputError, match="nothing was restored: Item 9 does not match its checksum"):
        restore(tmp_path / "b", tmp_path / "i", replace=True)
    assert len(index) == 300
    assert not (tmp_path / "r").exists()


def test_existing_folder_is_replaced_only_on_request(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "b")
    with pytest.raises(InputError, match="--replace"):
        restore(tmp_path / "b", tmp_path / "i")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").touch()
    with pytest.raises(InputError, match="holds other things than an index"):
        restore(tmp_path / "b", tmp_path / "photos", replace=True)
    assert [child.name for child in (tmp_path / "photos").iterdir()] == ["a.txt"]
    with pytest.raises(InputError, match="There is no index at"):
        restore(tmp_path / "photos", tmp_path / "r")


def test_open_index_goes_on_with_the_restored_one(tmp_path: Path) -> None:
    query = clustered_codes(1, 8, 0)
    with LocalIndex.open_folder(tmp_path / "i", bits=64, item_cache_size=1000) as index:
        index.add(clustered_codes(20, 8, 0), make_keys(20))
        index.add(clustered_codes(20, 8, 1), make_keys(20, 100))
        backup(index, tmp_path / "b")
        index.add(clustered_codes(20, 8, 2), make_keys(20, 200))
        assert len(index.search(query, 100)[0]) == 60
        restore(tmp_path / "b", tmp_path / "i", replace=True)
        assert len(index.search(query, 100)[0]) == 40
        index.add(clustered_codes(20, 8, 3), make_keys(20, 300))  # the same ids and generation as before
        found = {match.key for match in index.search(query, 100)[0]}
        assert found == {*make_keys(20), *make_keys(20, 100), *make_keys(20, 300)}
        with LocalIndex.open_folder(tmp_path / "i") as other:
            assert verify(other).problems == ()
            assert len(other) == 60


def test_cached_items_are_not_those_of_the_replaced_index(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=8, item_cache_size=10) as index:
        backup(index, tmp_path / "b")
        index.add(np.zeros((1, 1), np.uint8), ["before"])
        with LocalIndex.open_folder(tmp_path / "b") as copy:
            copy.add(np.zeros((1, 1), np.uint8), ["after"])
        assert index.search(np.zeros((1, 1), np.uint8), 1)[0][0].key == "before"
        restore(tmp_path / "b", tmp_path / "i", replace=True)
        assert index.search(np.zeros((1, 1), np.uint8), 1)[0][0].key == "after"


def test_writer_that_waits_during_a_restore_writes_to_the_restored_index(tmp_path: Path, index: LocalIndex) -> None:
    """The lock of the old file is free again after the folders are exchanged; nothing may be written to it then."""
    backup(index, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    holder = sqlite3.connect(tmp_path / "i" / FILE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    writer = start(
        """
        from pathlib import Path
        from helpers.codes import clustered_codes
        from proxyhash.index.local.index import LocalIndex
        index = LocalIndex.open_folder(Path({folder!r}))
        print("ready", flush=True)
        index.add(clustered_codes(1, 8, 1), ["written"])
        """,
        folder=tmp_path / "i",
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(0.5)  # the writer waits for the lock
    (tmp_path / "i").rename(tmp_path / "old")
    (tmp_path / "r").rename(tmp_path / "i")
    holder.close()
    assert writer.wait() == 0
    writer.stdout.close()
    with LocalIndex.open_folder(tmp_path / "i") as restored:
        assert restored.item("written").item_id == 300
        assert verify(restored).problems == ()


def test_write_to_a_file_that_was_replaced_is_not_acknowledged(tmp_path: Path, index: LocalIndex) -> None:
    """A damaged file cannot be locked while it is replaced, and the counter of the new index must stay as it is."""
    backup(index, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    with pytest.raises(InputError, match="was replaced by another index"), index.store.writing():
        (tmp_path / "i").rename(tmp_path / "old")
        (tmp_path / "r").rename(tmp_path / "i")
    with LocalIndex.open_folder(tmp_path / "i") as restored:
        assert verify(restored).problems == ()
