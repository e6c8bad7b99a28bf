"""The simulation of power loss itself: it finds writers that lose data, and refuses what it cannot follow."""

import struct
from pathlib import Path, PurePosixPath
from random import Random

import pytest

from helpers.power.file_workloads import check_text
from helpers.power.recording import Counts, check_cuts, record, scratch_folder
from helpers.power.replay import Disk, Kind, Operation, Tree

ROOT = Path("/root")
CREATE = 0o100
FILE, FOLDER = PurePosixPath("a"), PurePosixPath("f")


def operation(kind: Kind, handle: int = 0, number: int = 0, first: bytes = b"", second: bytes = b"") -> Operation:
    return Operation(kind, handle, number, first, second)


def opened(handle: int, path: str, flags: int = 0) -> Operation:
    return operation(Kind.OPEN, handle, flags, f"{ROOT}{path}".encode(), struct.pack("<Q", 100 + handle))


def disk_after(*operations: Operation, initial: Tree | None = None, is_journaling: bool = False) -> Disk:
    disk = Disk(ROOT, initial or {}, is_journaling=is_journaling)
    for each in operations:
        disk.apply(each)
    return disk


def cut_careless(name: str) -> Counts:
    with scratch_folder() as folder:
        recording = record(["helpers.power.file_workloads", name, str(folder)], folder)
        return check_cuts(recording, check_text, seed=0)


@pytest.mark.parametrize("writer", ["overwritten", "renamed_unsynced", "unsynced_name"])
def test_writers_that_lose_data_are_found(writer: str) -> None:
    failures = cut_careless(writer).failures
    assert failures
    assert all("strict disk" in failure for failure in failures) == (writer == "unsynced_name")


def test_writes_that_cannot_be_followed_are_refused() -> None:
    with pytest.raises(AssertionError, match="cannot follow: writable mmap"):
        cut_careless("mapped")


def test_synced_data_stays_and_unsynced_data_is_lost_kept_or_torn() -> None:
    data = bytes(range(1, 251)) * 8
    disk = disk_after(
        opened(1, "/a"),
        operation(Kind.WRITE, 1, 0, b"old"),
        operation(Kind.SYNC, 1),
        operation(Kind.WRITE, 1, 0, data),
        initial={FILE: b"initial content"},
    )
    assert disk.tree("all", "lost", Random(0))[FILE] == b"oldtial content"
    assert disk.tree("all", "kept", Random(0))[FILE] == data
    assert disk.tree("all", "zeros", Random(0))[FILE] == b"oldtial content".ljust(len(data), b"\0")
    torn = {len(content) for seed in range(40) if isinstance(content := disk.tree("all", "torn", Random(seed))[FILE], bytes)}
    assert torn == {15, 512, 1024, 1536, 2000}
    sectors = disk.tree("all", "sectors", Random(2))[FILE]
    assert isinstance(sectors, bytes)
    assert {sectors[start : start + 512] == data[start : start + 512] for start in (0, 512, 1024, 1536)} == {True, False}


def test_names_need_an_fsync_of_their_folder_unless_the_disk_keeps_a_journal() -> None:
    steps = (
        operation(Kind.MKDIR, first=b"/root/f"),
        opened(1, "/f/b", CREATE),
        operation(Kind.WRITE, 1, 0, b"data"),
        operation(Kind.SYNC, 1),
    )
    assert disk_after(*steps).tree("none", "lost", Random(0)) == {}
    assert disk_after(*steps, is_journaling=True).tree("none", "lost", Random(0)) == {FOLDER: None, FOLDER / "b": b"data"}
    inner = (opened(2, "/f"), operation(Kind.SYNC, 2))
    assert disk_after(*steps, *inner).tree("none", "lost", Random(0)) == {}  # the name of the folder itself is missing
    outer = (opened(3, ""), operation(Kind.SYNC, 3))
    assert disk_after(*steps, *inner, *outer).tree("none", "lost", Random(0)) == {FOLDER: None, FOLDER / "b": b"data"}


def test_names_change_in_order() -> None:
    renames = [operation(Kind.RENAME, first=f"/root/{n}".encode(), second=f"/root/{n + 1}".encode()) for n in range(4)]
    disk = disk_after(*renames, initial={PurePosixPath("0"): b""})
    found = {tuple(map(str, disk.tree("some", "lost", Random(seed)))) for seed in range(60)}
    assert found == {("0",), ("1",), ("2",), ("3",), ("4",)}


def test_two_names_are_exchanged_as_a_whole() -> None:
    exchange = operation(Kind.EXCHANGE, first=b"/root/a", second=b"/root/f")
    disk = disk_after(exchange, initial={FILE: b"a", FOLDER: b"f"})
    found = [disk.tree("some", "lost", Random(seed)) for seed in range(20)]
    assert all(tree in ({FILE: b"a", FOLDER: b"f"}, {FILE: b"f", FOLDER: b"a"}) for tree in found)
    assert len({str(tree) for tree in found}) == 2


def test_data_before_a_failed_fsync_may_be_lost_for_good() -> None:
    disk = disk_after(
        opened(1, "/a"),
        operation(Kind.WRITE, 1, 0, b"1"),
        operation(Kind.SYNC_FAILED, 1),
        operation(Kind.WRITE, 1, 1, b"2"),
        operation(Kind.SYNC, 1),
        initial={FILE: b"xxx"},
    )
    assert disk.tree("all", "lost", Random(0))[FILE] == b"x2x"
    assert disk.tree("all", "kept", Random(0))[FILE] == b"12x"


def test_rename_by_a_direct_system_call_is_inferred() -> None:
    disk = disk_after(
        opened(1, "/temporary", CREATE),
        operation(Kind.WRITE, 1, 0, b"new"),
        Operation(Kind.OPEN, 2, 0, b"/root/a", struct.pack("<Q", 101)),
        operation(Kind.SYNC, 2),
        initial={FILE: b"old"},
    )
    assert disk.tree("all", "lost", Random(0)) == {FILE: b"new"}
