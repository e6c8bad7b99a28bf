"""Fallbacks for systems that lack names of Linux; nothing was run on Windows or macOS."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from fastapi import HTTPException

from helpers import bare_system
from proxyhash.index import salvage
from proxyhash.index.local.items import Item
from proxyhash.serve import thumbnails
from proxyhash.serve.workers import process
from proxyhash.utils import atomic_io, environment
from proxyhash.utils.json_lines import append_json_line
from proxyhash.utils.locks import _LOCK_BYTE, exclusive_lock, try_lock
from proxyhash.utils.parallel import available_threads


def test_core_and_commands_run_without_names_of_linux(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(bare_system.__file__)), str(tmp_path)]
    settings = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    assert "a/2.png" in done.stdout
    assert "6 items in 1 blocks, ok" in done.stdout
    assert "cores" in done.stdout


class FakeMsvcrt(ModuleType):
    """Locks of bytes, as Windows has them: by file and position, held by a descriptor."""

    LK_LOCK, LK_NBLCK, LK_UNLCK = 1, 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[tuple[int, int], int] = {}
        self.waits = 0

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        assert size == 1
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if mode == self.LK_UNLCK:
            assert self.held.pop(place) == descriptor
        elif place in self.held:
            self.waits += 1
            raise OSError(errno.EDEADLK if mode == self.LK_LOCK else errno.EACCES, "held by another")
        else:
            self.held[place] = descriptor


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> FakeMsvcrt:
    locks = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    return locks


def test_locks_of_windows_exclude_others_and_keep_the_position(tmp_path: Path, windows: FakeMsvcrt) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("rb+") as one, exclusive_lock(one):
        assert one.read() == b"content"
        assert [place for _, place in windows.held] == [_LOCK_BYTE]
        with try_lock(path) as locked:
            assert not locked
    assert not windows.held
    with try_lock(path) as locked:
        assert locked


def test_lock_of_windows_is_awaited(tmp_path: Path, windows: FakeMsvcrt) -> None:
    path = tmp_path / "lines.jsonl"
    append_json_line(path, {"number": 1})
    with path.open("rb+") as holder:
        os.lseek(holder.fileno(), _LOCK_BYTE, os.SEEK_SET)
        windows.locking(holder.fileno(), windows.LK_LOCK, 1)
        other = threading.Thread(target=append_json_line, args=(path, {"number": 2}))
        other.start()
        while windows.waits < 3:  # it gave up waiting, and waits again
            pass
        windows.held.clear()
        other.join(30)
    assert path.read_bytes().count(b"\n") == 2


def test_thumbnail_is_read_without_directory_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.png"
    (root / "a").mkdir(parents=True)
    (root / "a" / "1.png").write_bytes(b"image\r\n")
    outside.write_bytes(b"secret")
    (root / "inner.png").symlink_to(root / "a" / "1.png")
    (root / "outer.png").symlink_to(outside)

    def read(name: str) -> bytes:
        item = Item(1, name, (), root / name, root)
        return thumbnails.read_image_file(item, 100).data

    for _ in range(2):
        assert read("a/1.png") == read("inner.png") == b"image\r\n"
        for name in ("outer.png", "a", "missing.png", "../outside.png"):
            with pytest.raises(HTTPException):
                read(name)
        monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    assert not thumbnails._can_open_stepwise()


def test_link_created_while_a_file_is_opened_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = (tmp_path / "root").resolve(), tmp_path / "outside.png"
    root.mkdir()
    (root / "1.png").write_bytes(b"image")
    outside.write_bytes(b"secret")
    usual = os.open

    def open_after_swap(path: Path, flags: int) -> int:
        (root / "1.png").unlink()
        (root / "1.png").symlink_to(outside)
        return usual(path, flags)

    monkeypatch.setattr(os, "open", open_after_swap)
    monkeypatch.delattr(os, "O_DIRECTORY")
    with pytest.raises(OSError, match="a link was created meanwhile"):
        thumbnails._open_inside(root, root / "1.png")


def test_file_is_copied_without_pread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread", raising=False)
    content = os.urandom(100_000)
    (tmp_path / "from").write_bytes(content)
    salvage._copy_readable(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == content


def test_folder_is_replaced_without_renameat2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for name in ("one", "two"):
        with atomic_io.atomic_folder(tmp_path / "folder") as new:
            (new / name).write_bytes(b"")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_file_is_named_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "link")
    (tmp_path / "new").write_bytes(b"1")
    atomic_io.name_new_file(tmp_path / "new", tmp_path / "file")
    (tmp_path / "new").write_bytes(b"2")
    with pytest.raises(FileExistsError):
        atomic_io.name_new_file(tmp_path / "new", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"1"


def test_machine_is_described_without_affinity_and_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert available_threads() >= 1
    assert environment.machine()["memory_gib"] is None


def test_workers_start_in_new_interpreters_without_a_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    assert process._context().get_start_method() == "spawn"
    process.start_fork_server()
