"""Indexes of earlier formats, read and written by this release; scripts in tests/fixtures wrote them."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from helpers.index_content import index_content, kept_content
from helpers.users import as_nobody
from proxyhash import InputError
from proxyhash.index.backup import backup
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.item_arrays import list_arrays, read_array, row_ids
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.salvage import salvage
from proxyhash.utils.errors import DamagedError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def copy(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def expected(name: str) -> Any:
    return json.loads((FIXTURES / name / "expected.json").read_text())


def copy_folder(number: int, folder: Path) -> Path:
    """Return the folder of an index of an earlier format, copied."""
    copied = copy(f"index-format-{number}", folder)
    return copied if number == 2 else copied / "index"


def as_lists(rows: dict[int, np.ndarray]) -> dict[int, Any]:
    return {item_id: (row.dtype.str, row.tolist()) for item_id, row in rows.items()}


def format_of(folder: Path) -> int:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def answers(index: LocalIndex, queries: np.ndarray, k: int) -> Any:
    """Return the matches of each query for JSON, without how they were found, which later releases may change."""
    found = json.loads(json.dumps([matches.as_dict() for matches in index.search(queries, k)]))
    return [{name: value for name, value in matches.items() if name not in ("plan", "compared")} for matches in found]


def test_index_of_format_2_is_migrated_and_gives_the_same_answers(tmp_path: Path) -> None:
    folder, want = copy("index-format-2", tmp_path), expected("index-format-2")
    assert format_of(folder) == 2
    with LocalIndex.open_folder(folder) as index:
        assert answers(index, np.array(want["queries"], np.uint8), 20) == want["found"]
        assert verify(index).problems == ()
        assert index.item("ü/0.png").path == Path("/photos/Köln/0.png")
        assert index.item("ü/0.png").has_image
        known = index.folder_sync(Path("/photos/Köln"), "").known_files()
        assert [known["3.png"].size, known["3.png"].mtime_ns, known["3.png"].row] == [103, 10**18 + 3, None]
        index.add(np.zeros((1, 2), np.uint8), ["new"])
        compact(index)
        assert verify(index).problems == ()
    assert format_of(folder) == 4


def test_backup_of_format_2_is_continued(tmp_path: Path) -> None:
    folder = copy("index-format-2", tmp_path)
    shutil.copytree(folder, tmp_path / "backup")
    with LocalIndex.open_folder(folder) as index:
        index.add(np.zeros((1, 2), np.uint8), ["new"])
        assert backup(index, tmp_path / "backup").items_copied == 1
        with LocalIndex.open_folder(tmp_path / "backup") as copied:
            assert index_content(copied) == index_content(index)


@pytest.mark.parametrize("number", [2, 3])
def test_read_only_index_of_an_earlier_format_is_searched(tmp_path: Path, number: int) -> None:
    with LocalIndex.open_folder(copy_folder(number, tmp_path)) as index:
        queries = index.code(index.list_items(limit=1)[0].key)
        want = answers(index, queries, 20)  # loads kernels, which others cannot read
        kept = as_lists(kept_content(index))
    with TemporaryDirectory() as parent:  # not pytest's, which is not readable by other users
        Path(parent).chmod(0o755)
        folder = copy_folder(number, Path(parent))
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        with as_nobody(), LocalIndex.open_folder(folder) as index:
            assert answers(index, queries, 20) == want
            assert as_lists(kept_content(index)) == kept
            with pytest.raises(InputError, match="cannot be written to"):
                index.add(queries[:1], ["new"])
        folder.chmod(0o755)
        assert format_of(folder) == number


@pytest.mark.parametrize(
    "statement",
    ["UPDATE meta SET value = value + 1 WHERE name = 'generation'", "DELETE FROM meta", "UPDATE meta SET value = x'00'"],
)
@pytest.mark.parametrize("number", [2, 3])
def test_damaged_index_of_an_earlier_format_is_not_migrated(tmp_path: Path, number: int, statement: str) -> None:
    folder = copy_folder(number, tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(DamagedError):
        LocalIndex.open_folder(folder)
    assert format_of(folder) == number


@pytest.mark.parametrize("number", [2, 3])
def test_commits_that_an_earlier_format_lost_are_noticed_after_the_migration(tmp_path: Path, number: int) -> None:
    folder = copy_folder(number, tmp_path)
    old = (folder / FILE).read_bytes()
    with LocalIndex.open_folder(folder) as index:
        index.add(np.zeros((1, (index.bits + 7) // 8), np.uint8), ["new"])
    (folder / FILE).write_bytes(old)
    with pytest.raises(DamagedError, match="last 1 commits are lost"):
        LocalIndex.open_folder(folder)


def test_damaged_index_of_format_2_is_salvaged(tmp_path: Path) -> None:
    folder = copy("index-format-2", tmp_path)
    shutil.copytree(folder, tmp_path / "whole")
    assert salvage(tmp_path / "whole", tmp_path / "all").complete
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("UPDATE items SET labels = NULL WHERE key = '0.png'")
        connection.commit()
    report = salvage(folder, tmp_path / "new")
    assert (report.saved, [lost.item_id for lost in report.lost]) == (7, [0])
    with LocalIndex.open_folder(tmp_path / "new") as index:
        assert index.item("ü/0.png").path == Path("/photos/Köln/0.png")


def test_index_of_format_3_gives_the_same_answers(tmp_path: Path) -> None:
    folder, want = copy("index-format-3", tmp_path) / "index", expected("index-format-3")
    vectors = np.load(FIXTURES / "index-format-3" / "vectors.npy")
    with LocalIndex.open_folder(folder) as index:
        assert (index.model, index.input, index.width) == (want["model"], "vector", 16)
        found = answers(index, vectors[[0, 20, 40]], 10)
        for match in (match for matches in found for match in matches["matches"] if "path" in match):
            match["path"] = Path(match["path"]).name
        assert found == want["found"]
        assert verify(index).problems == ()
        kept = list(kept_content(index).values())
        half = np.delete(vectors[20:40], 7, 0).astype(np.float16)
        np.testing.assert_array_equal(np.stack(kept[:19]), half)
        np.testing.assert_array_equal(np.stack(kept[19:]), vectors[[*range(44, 49), *range(50, 60), *range(40, 44)]])
        index.add(vectors[:2], ["x", "y"], keep_vectors=True)
        assert verify(index).problems == ()
        before = as_lists(kept_content(index))
        compact(index)
        assert as_lists(kept_content(index)) == before
        assert verify(index).problems == ()
    assert format_of(folder) == 4


def test_index_of_format_4_gives_the_same_answers(tmp_path: Path) -> None:
    folder, want = copy_folder(4, tmp_path), expected("index-format-4")
    vectors = np.load(FIXTURES / "index-format-4" / "vectors.npy")
    with LocalIndex.open_folder(folder) as index:
        assert (index.model, index.input, index.width) == (want["model"], "vector", 16)
        assert answers(index, vectors[[0, 20, 40]], 10) == want["found"]
        kept = index.search(vectors[[0, 20, 40]], 10, where=want["where"])
        assert [matches.keys for matches in kept] == want["kept"]
        assert {name: info.settings for name, info in list_arrays(index.store).items()} == want["settings"]
        for name, rows in want["rows"].items():
            assert [array.tolist() for array in read_array(index.store, name)] == rows
        assert verify(index).problems == ()
        index.remove(["ü 0"])
        compact(index)
        for name, (item_ids, _) in want["rows"].items():
            assert row_ids(index.store, name).tolist() == item_ids[1:]
        assert verify(index).problems == ()


def test_migration_of_format_3_does_not_rewrite_vectors(tmp_path: Path) -> None:
    folder = copy_folder(3, tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        before = connection.execute("SELECT number, info_checksum, item_ids, vectors FROM vectors").fetchall()
        page_count = connection.execute("PRAGMA page_count").fetchone()[0]
    LocalIndex.open_folder(folder).close()
    with closing(sqlite3.connect(folder / FILE)) as connection:
        after = connection.execute("SELECT number, info_checksum, item_ids, data FROM array_blocks").fetchall()
        assert after == before
        assert connection.execute("PRAGMA page_count").fetchone()[0] <= page_count + 6


def test_backup_of_format_3_is_continued(tmp_path: Path) -> None:
    folder = copy_folder(3, tmp_path)
    shutil.copytree(folder, tmp_path / "backup")
    with LocalIndex.open_folder(folder) as index:
        index.add(np.ones((1, 16), np.float32), ["new"], keep_vectors=True)
        result = backup(index, tmp_path / "backup")
        assert (result.items_copied, result.array_blocks_copied) == (1, 1)
        with LocalIndex.open_folder(tmp_path / "backup") as copied:
            assert index_content(copied) == index_content(index)
            assert as_lists(kept_content(copied)) == as_lists(kept_content(index))


def test_damaged_vectors_of_format_3_are_noticed_after_the_migration(tmp_path: Path) -> None:
    folder = copy_folder(3, tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("UPDATE vectors SET vectors = zeroblob(length(vectors)) WHERE number = 1")
        connection.commit()
    report = salvage(folder, tmp_path / "before")
    (note,) = report.notes
    assert note.endswith("kept vectors are lost; their items are not.")
    with LocalIndex.open_folder(folder) as index:
        assert "block 1 of the array 'vectors'" in verify(index).problems[0]
    assert salvage(folder, tmp_path / "after").notes == report.notes


def test_index_of_format_3_is_salvaged(tmp_path: Path) -> None:
    folder = copy_folder(3, tmp_path)
    assert salvage(folder, tmp_path / "new").complete
    with LocalIndex.open_folder(tmp_path / "new") as saved, LocalIndex.open_folder(folder) as index:
        assert index_content(saved) == index_content(index)
        found, expected = kept_content(saved), kept_content(index)
        assert {key: row.tolist() for key, row in found.items()} == {key: row.tolist() for key, row in expected.items()}
