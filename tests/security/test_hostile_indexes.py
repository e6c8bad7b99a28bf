"""Index files by someone who wants to run code or to make an index answer wrongly."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proxyhash import Index
from proxyhash.utils.errors import InputError


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Return the file of an index with items."""
    folder = tmp_path / "index"
    with Index.open(folder, bits=16) as opened:
        opened.add(np.arange(8, dtype=np.uint8).reshape(4, 2), ["a", "b", "c", "d"])
    return folder / "index.sqlite"


def run(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def assert_refused(path: Path) -> None:
    with pytest.raises(InputError) as error, Index.open(path.parent) as opened:
        opened.search(np.zeros((1, 2), np.uint8), 4)
        opened.add(np.zeros((1, 2), np.uint8), ["e"])
    assert "\n" not in str(error.value)


def view(path: Path) -> None:
    run(path, "ALTER TABLE items RENAME TO hidden; CREATE VIEW items AS SELECT * FROM hidden;")


def trigger(path: Path) -> None:
    run(path, "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END;")


def another_database(path: Path) -> None:
    path.unlink()
    run(path, "CREATE TABLE notes(text); INSERT INTO notes VALUES ('x');")


def huge_blob(path: Path) -> None:
    run(path, "UPDATE blocks SET codes = zeroblob(100000000);")


def text_blob(path: Path) -> None:
    run(path, "UPDATE blocks SET codes = 'text', count = 'many';")


def garbage(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)


@pytest.mark.parametrize("attack", [view, trigger, another_database, huge_blob, text_blob, garbage])
def test_a_hostile_file_is_refused(index: Path, attack: Callable[[Path], None]) -> None:
    attack(index)
    assert_refused(index)
