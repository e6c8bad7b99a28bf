"""What an index notices: lost commits, replaced and swapped files, changed rows, changes during an upgrade."""

import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.users import as_nobody
from proxyhash import Index, InputError
from proxyhash.cli.app import main
from proxyhash.data import SkippedItems
from proxyhash.index import upgrade as upgrade_module
from proxyhash.index.calibration import Calibration
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local import blocks
from proxyhash.index.local.commits import COMMITS_FILE, CommitCount, read_commits, write_commits
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.upgrade import Upgrade, upgrade
from proxyhash.models.hasher import Hasher
from proxyhash.utils.errors import DamagedError


@pytest.fixture
def index(tmp_path: Path, model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalIndex]:
    """Return an index of twelve images in three blocks."""
    monkeypatch.setattr(blocks, "CODES_PER_BLOCK", 4)
    monkeypatch.setattr(upgrade_module, "CODES_PER_BLOCK", 4)
    with LocalIndex.open_folder(tmp_path / "i", model=model) as opened:
        add_folder(opened, photos, SkippedItems())
        yield opened


def check_codes(index: LocalIndex, hasher: Hasher) -> None:
    """Compare every code with what the model gives for its image."""
    assert verify(index).problems == ()
    for (key,) in index.store.rows("SELECT key FROM items"):
        path = index.item(key).path
        assert path is not None
        np.testing.assert_array_equal(index.code(key), hasher.encode(path))


class StoppedError(Exception):
    """Stands for a kill."""


def stop_after(codes: int) -> Callable[[int, int], None]:
    def on_progress(done: int, _: int) -> None:
        if done >= codes:
            raise StoppedError

    return on_progress


def stop_upgrade(index: LocalIndex, hasher: Hasher, codes: int) -> None:
    with pytest.raises(StoppedError):
        upgrade(index, hasher, SkippedItems(), on_progress=stop_after(codes))


def test_second_upgrade_is_refused_while_one_runs(index: LocalIndex, other_model: Path) -> None:
    hasher, errors = Hasher.load(other_model), []

    def second(*_: int) -> None:
        with LocalIndex.open_folder(index.folder) as again, pytest.raises(InputError, match="is upgrading") as caught:
            upgrade(again, hasher, SkippedItems())
        errors.append(caught)

    assert upgrade(index, hasher, SkippedItems(), on_progress=second) == 12
    assert len(errors) == 3
    check_codes(index, hasher)


def test_upgrade_that_lost_its_version_stops_and_changes_nothing(
    index: LocalIndex, model: Path, other_model: Path, tmp_path: Path
) -> None:
    """On a file system without locks, a later upgrade to a third model takes over, and is stopped itself."""
    third = Hasher.load(other_model)
    with np.errstate(all="ignore"):
        for parameter in third.network.parameters():
            parameter.data *= -1
    third.folder = None
    third.save(tmp_path / "third")

    def take_over(*_: int) -> None:
        with LocalIndex.open_folder(index.folder) as again, pytest.raises(StoppedError):
            Upgrade(again, Hasher.load(tmp_path / "third"), SkippedItems(), on_progress=stop_after(4)).run()

    with pytest.raises(InputError, match="took over the upgrade"):
        Upgrade(index, Hasher.load(other_model), SkippedItems(), on_progress=take_over).run()
    check_codes(index, Hasher.load(model))
    assert index.store.meta().next_version == 4  # 2 and 3 were given, and are not given again


def test_items_removed_after_a_stopped_upgrade_stay_removed(index: LocalIndex, other_model: Path) -> None:
    hasher = Hasher.load(other_model)
    stop_upgrade(index, hasher, 8)
    first_block = [index.item(key).key for (key,) in index.store.rows("SELECT key FROM items ORDER BY item_id LIMIT 4")]
    index.remove(first_block)
    assert upgrade(index, hasher, SkippedItems()) == 8
    assert len(index) == len(index.search(np.zeros((1, 3), np.uint8), 99)[0]) == 8
    check_codes(index, hasher)


def test_items_removed_and_added_during_an_upgrade(index: LocalIndex, other_model: Path, photos: Path) -> None:
    hasher, steps = Hasher.load(other_model), iter(range(100))

    def change(*_: int) -> None:
        if next(steps) == 1:
            index.remove(["cats/0.png", "cats/1.png", "cats/2.png", "cats/3.png", "dogs/11.png"])
            shutil.copyfile(photos / "dogs" / "8.png", photos / "dogs" / "new.png")
            add_folder(index, photos / "dogs", SkippedItems(), prefix="again/")

    removed_before = len(index)
    upgrade(index, hasher, SkippedItems(), on_progress=change)
    assert len(index) != removed_before
    check_codes(index, hasher)


def test_compact_during_an_upgrade_disturbs_neither(index: LocalIndex, other_model: Path) -> None:
    hasher = Hasher.load(other_model)
    index.remove(["cats/1.png", "dogs/7.png"])

    def compacting(*_: int) -> None:
        with LocalIndex.open_folder(index.folder) as again:
            compact(again)

    assert upgrade(index, hasher, SkippedItems(), on_progress=compacting) == 10
    check_codes(index, hasher)


def test_compact_drops_a_stopped_upgrade(index: LocalIndex, model: Path, other_model: Path) -> None:
    stop_upgrade(index, Hasher.load(other_model), 4)
    assert len(index.store.list_versions()) == 2
    compact(index)
    assert (len(index.store.list_versions()), len(list((index.folder / "models").iterdir()))) == (1, 1)
    check_codes(index, Hasher.load(model))
    upgrade(index, Hasher.load(other_model), SkippedItems())
    check_codes(index, Hasher.load(other_model))


def test_folder_of_items_survives_a_compact_between_two_batches(index: LocalIndex, photos: Path) -> None:
    sync = index.folder_sync(photos / "cats", "more/")
    compact(index)
    stat = next(iter(index.folder_sync(photos, "").known_files().values()))
    sync.store(index.code("cats/0.png"), ["more/0.png"], ["cats"], [stat])
    assert index.item("more/0.png").path == photos / "cats" / "0.png"


# --- Lost commits ---


def filled(folder: Path, batches: int) -> LocalIndex:
    index = LocalIndex.open_folder(folder, bits=64)
    for batch in range(batches):
        index.add(clustered_codes(5, 8, batch), make_keys(5, 5 * batch))
    return index


@pytest.mark.parametrize("damage", ["cut", "flipped", "removed"])
def test_commits_lost_with_the_log_are_reported(tmp_path: Path, damage: str) -> None:
    with filled(tmp_path / "i", 4) as index:  # an open index, whose commits are in the log
        shutil.copytree(index.folder, tmp_path / "copy")
    log = tmp_path / "copy" / f"{FILE}-wal"
    if damage == "cut":
        os.truncate(log, log.stat().st_size - 5000)
    elif damage == "flipped":
        content = bytearray(log.read_bytes())
        content[-3000] ^= 1
        log.write_bytes(content)
    else:
        log.unlink()
    with pytest.raises(InputError, match=r"its last \d commits are lost, because its log was damaged or removed; restore"):
        Index.open(tmp_path / "copy")


def test_counter_survives_a_torn_write(tmp_path: Path) -> None:
    with filled(tmp_path / "i", 3) as index:
        generation = index.store.generation
    assert read_commits(tmp_path / "i") == CommitCount(index_id_of(tmp_path / "i"), generation)
    path = tmp_path / "i" / COMMITS_FILE
    content = bytearray(path.read_bytes())
    content[generation % 2 * 4096 + 20] ^= 4
    path.write_bytes(content)
    count = read_commits(tmp_path / "i")
    assert count is not None
    assert count.generation == generation - 1
    assert len(Index.open(tmp_path / "i")) == 15
    path.write_bytes(bytes(8192))
    with pytest.raises(InputError, match=r"commits is damaged, so that lost commits would not be noticed"):
        Index.open(tmp_path / "i")
    path.unlink()
    with pytest.raises(InputError, match=r"'commits' is missing"):
        Index.open(tmp_path / "i")


def index_id_of(folder: Path) -> str:
    with LocalIndex.open_folder(folder) as index:
        return index.store.meta().index_id


def test_counter_never_goes_back(tmp_path: Path) -> None:
    for generation in (3, 7, 5, 6):
        write_commits(tmp_path, CommitCount("a" * 32, generation))
    assert read_commits(tmp_path) == CommitCount("a" * 32, 7)


def test_swapped_files_of_two_indexes_are_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        filled(tmp_path / name, 2).close()
    shutil.copyfile(tmp_path / "one" / FILE, tmp_path / "two" / FILE)
    with pytest.raises(InputError, match="'commits' belongs to another index"):
        Index.open(tmp_path / "two")


# --- Damaged rows ---

CHANGES = {
    "label": "UPDATE items SET labels = '[\"dog\"]' WHERE item_id = 3",
    "label that is not JSON": "UPDATE items SET labels = '[\"do' WHERE item_id = 3",
    "key": "UPDATE items SET key = 'other' WHERE item_id = 3",
    "checksum of an item": "UPDATE items SET checksum = checksum + 1 WHERE item_id = 3",
    "size of a file": "UPDATE items SET size = 9 WHERE item_id = 3",
    "missing item": "DELETE FROM items WHERE item_id = 3",
    "min_id": "UPDATE blocks SET min_id = 2",
    "max_id": "UPDATE blocks SET max_id = 2",
    "count": "UPDATE blocks SET count = count - 1",
    "generation": "UPDATE blocks SET generation = 1",
    "codes": "UPDATE blocks SET codes = zeroblob(length(codes))",
    "codes that are no blob": "UPDATE blocks SET codes = 5",
    "missing block": "DELETE FROM blocks",
    "bits": "UPDATE versions SET bits = 32",
    "number of codes": "UPDATE versions SET num_codes = 3",
    "missing version": "DELETE FROM versions",
    "model": "UPDATE versions SET model = 'abc'",
    "centroids": "UPDATE versions SET centroids = zeroblob(80)",
    "active version": "UPDATE meta SET value = 2 WHERE name = 'active_version'",
    "next id": "UPDATE meta SET value = 2 WHERE name = 'next_id'",
    "missing meta": "DELETE FROM meta WHERE name = 'generation'",
    "meta of another type": "UPDATE meta SET value = 'x' WHERE name = 'generation'",
    "missing table": "DROP TABLE items",
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_rows_are_noticed_before_results_are_returned(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(clustered_codes(5, 8, 0), make_keys(5), ["cat"] * 5)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(CHANGES[change])
        connection.commit()
    with pytest.raises(InputError, match=r"is damaged|another index") as caught, LocalIndex.open_folder(folder) as index:
        index.search(clustered_codes(1, 8, 0), 5)
    assert "proxyhash index salvage" in str(caught.value)
    with pytest.raises(SystemExit) as stopped:
        main(["index", "verify", str(folder)])
    assert stopped.value.code == 1


def test_changed_folders_are_noticed(index: LocalIndex) -> None:
    query = index.code("cats/0.png")
    for statement in ("UPDATE sources SET path = '/elsewhere'", "DELETE FROM sources", "DROP TABLE sources"):
        with closing(sqlite3.connect(index.folder / FILE)) as connection:
            connection.execute(statement)
            connection.commit()
        with pytest.raises(InputError, match="is damaged"):
            index.search(query, 3)
        with pytest.raises(InputError, match="is damaged"):
            index.item("cats/0.png")


def test_key_that_the_index_of_keys_lacks_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(clustered_codes(200, 8, 0), make_keys(200))
        page = index.store.value("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_items_1'")
    content = bytearray((folder / FILE).read_bytes())
    content[(page - 1) * 8192 : page * 8192] = content[(page - 1) * 8192 : page * 8192].replace(b"item/00007", b"jtem/00007")
    (folder / FILE).write_bytes(content)
    with LocalIndex.open_folder(folder) as index:
        with pytest.raises(InputError, match="index of keys lacks item/00007"):
            index.item("item/00007")
        with pytest.raises(InputError, match="index of keys lacks item/00007"):
            index.remove(["item/00007"])
        with pytest.raises(InputError, match="index of keys lacks item/00007"):
            index.search(clustered_codes(1, 8, 0), where="key == 'item/00007'")
        assert not verify(index).ok


@pytest.mark.parametrize("damage", ["empty", "changed"])
def test_texts_that_the_index_of_texts_lacks_are_noticed(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "i"
    codes, keys = clustered_codes(40, 8, 0), make_keys(40)
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(codes, keys, columns={"place": ["Rome", "Oslo"] * 20})
        page = index.store.value("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_texts_1'")
        other = index.store.value("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_sources_1'")
    content = bytearray((folder / FILE).read_bytes())
    pages = {number: content[(number - 1) * 8192 : number * 8192] for number in (page, other)}
    content[(page - 1) * 8192 : page * 8192] = pages[other] if damage == "empty" else pages[page].replace(b"Rome", b"Roma")
    (folder / FILE).write_bytes(content)
    with LocalIndex.open_folder(folder) as index:
        with pytest.raises(DamagedError, match="index of texts differs from the texts"):
            index.search(codes[:1], 40, where="place == 'Rome'")
        with pytest.raises(DamagedError, match="index of texts differs from the texts"):
            index.add(codes[:1], ["new"], columns={"place": ["Rome"]})
        assert not verify(index).ok


def test_list_of_items_that_the_index_of_keys_cuts_short_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(clustered_codes(60, 8, 0), make_keys(60))
        assert len(index.list_items(limit=61)) == 60
        page = index.store.value("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_items_1'")
    content = bytearray((folder / FILE).read_bytes())
    content[page * 8192 - 4096 : page * 8192] = bytes(4096)  # SQLite takes the keys there for null
    (folder / FILE).write_bytes(content)
    with LocalIndex.open_folder(folder) as index, pytest.raises(DamagedError, match="index of keys lacks 60 items"):
        index.list_items(limit=61)


def test_damaged_name_of_a_table_is_noticed(tmp_path: Path) -> None:
    """SQLite puts the name into the message of its error, where Python cannot decode it."""
    filled(tmp_path / "i", 1).close()
    path = tmp_path / "i" / FILE
    content = bytearray(path.read_bytes())
    content[:8192] = content[:8192].replace(b"CREATE TABLE items(", b"CREATE TABL\xa4 items(")
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="salvage"):
        Index.open(tmp_path / "i")


@pytest.mark.parametrize("precision", [7.5, float("nan"), -0.1])
def test_invalid_calibration_is_noticed(index: LocalIndex, precision: float) -> None:
    folder = index.folder / "models" / str(index.model)
    Calibration(np.full(33, precision), np.ones(33, np.int64)).save(folder)
    assert not verify(index).ok
    with pytest.raises(InputError, match="calibrate the model again"):
        index.search(np.zeros((1, 4), np.uint8))


def test_changed_model_configuration_is_noticed(index: LocalIndex, photos: Path) -> None:
    path = index.folder / "models" / str(index.model) / "config.json"
    path.write_text(path.read_text().replace('"cats"', '"cows"') + " ")
    with LocalIndex.open_folder(index.folder) as again, pytest.raises(InputError, match="checksum differs"):
        again.search(photos / "cats" / "0.png")
    assert not verify(index).ok


# --- Replaced folders, and creation ---


def test_replaced_folder_is_searched_and_written(tmp_path: Path) -> None:
    filled(tmp_path / "new", 3).close()
    with filled(tmp_path / "i", 1) as index:
        assert len(index.search(clustered_codes(1, 8, 0), 99)[0]) == 5
        (tmp_path / "i").rename(tmp_path / "aside")
        (tmp_path / "new").rename(tmp_path / "i")
        assert len(index.search(clustered_codes(1, 8, 0), 99)[0]) == len(index) == 15
        index.add(clustered_codes(1, 8, 9), ["late"])
        with LocalIndex.open_folder(tmp_path / "i") as other:
            assert other.item("late").key == "late"
            assert len(other) == 16
        shutil.rmtree(tmp_path / "i")
        with pytest.raises(InputError, match="There is no index at"):
            index.search(clustered_codes(1, 8, 0), 99)
        with pytest.raises(InputError, match="There is no index at"):
            index.add(clustered_codes(1, 8, 9), ["later"])
        (tmp_path / "aside").rename(tmp_path / "i")
        assert len(index) == 5


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the kernel refuse to write files beyond a size, as a full disk does."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [0, 100, 4096, 8192, 20_000, 40_000, 60_000])
def test_creation_on_a_full_disk_can_be_repeated(tmp_path: Path, size: int) -> None:
    with file_size_limit(size), pytest.raises(InputError):
        Index.open(tmp_path / "i", bits=64).add(clustered_codes(2000, 8, 0), make_keys(2000))
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(2000, 8, 0), make_keys(2000))
        assert len(index) == 2000


def test_file_that_release_0_1_left_on_a_full_disk_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    with closing(sqlite3.connect(tmp_path / "i" / FILE)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # writes the header, and no table
    with Index.open(tmp_path / "i", bits=64) as index:
        assert len(index) == 0


def test_index_is_created_on_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with filled(tmp_path / "i", 2) as index:
        assert (len(index), verify(index).problems) == (10, ())
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == ["commits", FILE]


def test_two_processes_create_one_index(tmp_path: Path) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from helpers.codes import clustered_codes, make_keys
        from proxyhash import Index
        number = int(sys.argv[1])
        with Index.open(Path({str(tmp_path / "i")!r}), bits=64) as index:
            index.add(clustered_codes(5, 8, number), make_keys(5, 5 * number))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    processes = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(3)]
    assert [process.communicate()[1] for process in processes] == ["", "", ""]
    with LocalIndex.open_folder(tmp_path / "i") as index:
        assert (len(index), verify(index).problems) == (15, ())


def test_unreadable_index_says_so() -> None:
    with TemporaryDirectory() as parent:  # not pytest's, which is not readable by other users
        Path(parent).chmod(0o755)
        filled(Path(parent) / "i", 1).close()
        (Path(parent) / "i" / FILE).chmod(0)
        with as_nobody(), pytest.raises(InputError, match=r"index.sqlite cannot be read; check who owns it"):
            Index.open(Path(parent) / "i")


# --- One state in each answer ---


def test_answers_hold_items_of_one_state_while_items_are_replaced(tmp_path: Path) -> None:
    """All items carry the number of the batch that wrote them; an answer with two numbers mixes two states."""
    folder, keys, stored = tmp_path / "i", make_keys(20), clustered_codes(20, 8, 0)
    done = threading.Event()
    with LocalIndex.open_folder(folder, bits=64) as reader, LocalIndex.open_folder(folder, bits=64) as writer:
        writer.add(stored, keys, ["0"] * 20)

        def replace_all() -> None:
            for number in range(1, 150):
                writer.add(stored, keys, [str(number)] * 20)
            done.set()

        thread = threading.Thread(target=replace_all)
        thread.start()
        answers = 0
        while not done.is_set():
            matches = reader.search(stored[:1], 20)[0]
            assert len(matches) == 20
            assert len({match.labels for match in matches}) == 1
            answers += 1
        thread.join()
        assert answers > 10
