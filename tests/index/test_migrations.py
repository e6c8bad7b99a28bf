"""Migration of an index of release 0.1; its answers are compared in tests/compatibility."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from helpers.corruption import change_bytes, flip_bit, zero_page
from helpers.release_0_1 import as_lists, index_folder, read_json
from helpers.users import as_nobody
from proxyhash import Index, InputError
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.maintenance import verify
from proxyhash.utils.errors import DamagedError

EXPECTED = read_json("scanned-index/expected.json")
QUERIES = np.array(EXPECTED["queries"], np.uint8)


def format_of(folder: Path) -> int:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_index_is_migrated_once_when_it_is_opened(tmp_path: Path) -> None:
    folder = index_folder("scanned-index", tmp_path)
    with LocalIndex.open_folder(folder) as index:
        generation = index.store.generation
    with LocalIndex.open_folder(folder) as index:
        assert index.store.generation == generation
        assert verify(index).ok
    assert format_of(folder) == 4


def test_read_only_index_of_release_0_1_is_searched(tmp_path: Path) -> None:
    with TemporaryDirectory() as parent:  # not pytest's, which is not readable by other users
        Path(parent).chmod(0o755)
        folder = Path(shutil.copytree(index_folder("scanned-index", tmp_path), Path(parent) / "i"))
        Index.open(tmp_path / "scanned-index").search(QUERIES, EXPECTED["k"])  # loads kernels, which others cannot read
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        with as_nobody(), LocalIndex.open_folder(folder) as index:
            found = index.search(QUERIES, EXPECTED["k"])
            assert [as_lists(matches) for matches in found] == EXPECTED["nearest"]
            with pytest.raises(InputError, match="cannot be written to"):
                index.add(QUERIES[:1], ["new"])
        folder.chmod(0o755)
        assert format_of(folder) == 1


def test_damaged_index_of_release_0_1_is_not_migrated(tmp_path: Path) -> None:
    folder = index_folder("scanned-index", tmp_path)
    change(folder, "UPDATE blocks SET codes = zeroblob(length(codes))")
    with pytest.raises(DamagedError, match="does not match its checksum"):
        Index.open(folder)
    assert format_of(folder) == 1


def test_unfinished_upgrade_of_release_0_1_is_dropped(tmp_path: Path) -> None:
    folder = index_folder("scanned-index", tmp_path)
    change(folder, "INSERT INTO editions VALUES (2, 64, 'other', NULL, 0)")
    change(folder, "INSERT INTO blocks VALUES (2, 0, 9, 0, 0, 0, 0, x'', x'', x'')")
    with LocalIndex.open_folder(folder) as index:
        assert list(index.store.list_versions()) == [1]
        assert index.store.meta().next_version == 3
        assert verify(index).ok
        assert [as_lists(matches) for matches in index.search(QUERIES, EXPECTED["k"])] == EXPECTED["nearest"]


def test_stopped_migration_leaves_the_old_format(tmp_path: Path) -> None:
    folder = index_folder("scanned-index", tmp_path)

    def stop(_: str, share: float) -> None:
        if share == 1.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalIndex.open_folder(folder, progress=stop)
    assert format_of(folder) == 1
    with LocalIndex.open_folder(folder) as index:
        assert [as_lists(matches) for matches in index.search(QUERIES, EXPECTED["k"])] == EXPECTED["nearest"]


def test_randomly_damaged_index_of_release_0_1_is_migrated_or_refused(tmp_path: Path) -> None:
    original = index_folder("scanned-index", tmp_path)
    content = (original / FILE).read_bytes()
    refused = 0
    for seed in range(150):
        random = np.random.default_rng(seed)
        damaged = bytearray(content)
        damage = [flip_bit, change_bytes, zero_page][seed % 3]
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / FILE).write_bytes(damage(random, damaged, b""))
        try:
            with LocalIndex.open_folder(folder) as index:
                index.search(QUERIES, 5)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > 10


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM facts",
        "DELETE FROM editions",
        "UPDATE facts SET value = 'x'",
        "UPDATE blocks SET codes = NULL",
        "UPDATE blocks SET codes = 5",
        "UPDATE items SET labels = x'ff'",
    ],
)
def test_wrong_values_of_release_0_1_are_refused(tmp_path: Path, statement: str) -> None:
    folder = index_folder("scanned-index", tmp_path)
    try:
        change(folder, statement)
    except sqlite3.IntegrityError:
        pytest.skip("SQLite refuses this value")
    with pytest.raises(InputError), LocalIndex.open_folder(folder) as index:
        index.search(QUERIES, 500)
