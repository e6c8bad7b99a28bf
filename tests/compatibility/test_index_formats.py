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
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.salvage import salvage
from proxyhash.utils.errors import DamagedError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def copy(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def expected(name: str) -> Any:
    return json.loads((FIXTURES / name / "expected.json").read_text())


def format_of(folder: Path) -> int:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def answers(index: LocalIndex, queries: np.ndarray, k: int) -> Any:
    return json.loads(json.dumps([matches.as_dict() for matches in index.search(queries, k)]))


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


def test_read_only_index_of_format_2_is_searched(tmp_path: Path) -> None:
    want = expected("index-format-2")
    queries = np.array(want["queries"], np.uint8)
    with LocalIndex.open_folder(copy("index-format-2", tmp_path)) as index:
        index.search(queries)  # loads kernels, which others cannot read
    with TemporaryDirectory() as parent:  # not pytest's, which is not readable by other users
        Path(parent).chmod(0o755)
        folder = copy("index-format-2", Path(parent))
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        with as_nobody(), LocalIndex.open_folder(folder) as index:
            assert answers(index, queries, 20) == want["found"]
            with pytest.raises(InputError, match="cannot be written to"):
                index.add(queries[:1], ["new"])
        folder.chmod(0o755)
        assert format_of(folder) == 2


@pytest.mark.parametrize(
    "statement",
    ["UPDATE meta SET value = value + 1 WHERE name = 'generation'", "DELETE FROM meta", "UPDATE meta SET value = x'00'"],
)
def test_damaged_index_of_format_2_is_not_migrated(tmp_path: Path, statement: str) -> None:
    folder = copy("index-format-2", tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(DamagedError):
        LocalIndex.open_folder(folder)
    assert format_of(folder) == 2


def test_commits_that_format_2_lost_are_noticed_after_the_migration(tmp_path: Path) -> None:
    folder = copy("index-format-2", tmp_path)
    old = (folder / FILE).read_bytes()
    with LocalIndex.open_folder(folder) as index:
        index.add(np.zeros((1, 2), np.uint8), ["new"])
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
