"""Faults of real machines: killed and concurrent writers, full disks, read-only folders, damaged and foreign files."""

import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.users import as_nobody
from proxyhash import Index, InputError, codes
from proxyhash.index.local import commits, store
from proxyhash.index.local.blocks import list_blocks, read_blocks
from proxyhash.index.local.commits import CommitCount
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.schema import FIRST_GENERATION
from proxyhash.index.local.store import Store
from proxyhash.index.maintenance import verify

WRITER = """
    from pathlib import Path
    from helpers.codes import clustered_codes, make_keys
    from proxyhash.index.local.index import LocalIndex
    index = LocalIndex.open_folder(Path({folder!r}), bits=64)
    print("ready", flush=True)
    for batch in range({first}, {first} + {batches}):
        index.add(clustered_codes(50, 8, batch), make_keys(50, 50 * batch))
        if batch % 3 == 2:
            index.remove(make_keys(10, 50 * (batch - 1)))
        print(batch, flush=True)
"""


def start_writer(folder: Path, first: int, batches: int) -> "subprocess.Popen[str]":
    script = WRITER.format(folder=str(folder), first=first, batches=batches)
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def state_after(batches: int, removed_in_last: bool) -> dict[str, bytes]:
    """Return what an index holds after so many whole batches, with the removal of the last one or without."""
    held: dict[str, bytes] = {}
    for batch in range(batches):
        held |= dict(zip(make_keys(50, 50 * batch), (code.tobytes() for code in clustered_codes(50, 8, batch)), strict=True))
        if batch % 3 == 2 and (batch < batches - 1 or removed_in_last):
            for key in make_keys(10, 50 * (batch - 1)):
                del held[key]
    return held


def contents(index: LocalIndex) -> dict[str, bytes]:
    keys = dict(index.store.rows("SELECT item_id, key FROM items"))
    found = list(read_blocks(index.store, 1, list(list_blocks(index.store, 1))))
    return {
        keys[int(item_id)]: code.tobytes()
        for block in found
        for item_id, code in zip(block.item_ids, block.codes, strict=True)
    }


def kill_at_random(folder: Path, times: int) -> None:
    random = np.random.default_rng(times)
    done = 0
    for _ in range(times):
        writer = start_writer(folder, done, 10_000)
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "ready"
        time.sleep(random.uniform(0.0, 0.4))
        writer.send_signal(signal.SIGKILL)
        said = [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        writer.stdout.close()
        told = said[-1] + 1 if said else done
        with LocalIndex.open_folder(folder) as index:
            assert verify(index).problems == ()
            held = contents(index)
            # Everything that the writer was told is committed, and of what it was doing then, whole transactions or nothing.
            possible = [state_after(told, True), state_after(told + 1, False), state_after(told + 1, True)]
            assert held in possible
            done = told + (held != possible[0])
            if done % 3 == 0 and held == state_after(done, False) != state_after(done, True):
                index.remove(make_keys(10, 50 * (done - 2)))  # as the writer would have done next


def test_killed_writer_leaves_complete_batches(tmp_path: Path) -> None:
    kill_at_random(tmp_path / "i", 3)


def test_index_opens_after_a_kill_between_its_first_commit_and_the_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_commits(folder: Path, count: CommitCount) -> None:
        if count.generation > FIRST_GENERATION:
            raise KeyboardInterrupt
        commits.write_commits(folder, count)

    index = LocalIndex.open_folder(tmp_path / "i", bits=64)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(store, "write_commits", write_commits)
        index.add(clustered_codes(5, 8, 0), make_keys(5))
    index.close()
    with LocalIndex.open_folder(tmp_path / "i") as index:
        assert len(index) == 5
        assert verify(index).ok


@pytest.mark.slow
def test_writers_killed_at_many_instants_leave_complete_batches(tmp_path: Path) -> None:
    kill_at_random(tmp_path / "i", 40)


def test_several_processes_write_and_one_reads(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with LocalIndex.open_folder(folder, bits=64) as reader:
        writers = [start_writer(folder, first, 6) for first in (0, 6)]
        counts = []
        while any(writer.poll() is None for writer in writers):
            counts.append(len(reader.search(clustered_codes(1, 8, 0), 10**6)[0]))
            time.sleep(0.02)
        assert [writer.returncode for writer in writers] == [0, 0]
        for writer in writers:
            writer.communicate()
        assert len(reader.search(clustered_codes(1, 8, 0), 10**6)[0]) == 12 * 50 - 4 * 10
        assert all(count % 10 == 0 for count in counts)  # never part of a batch
        assert verify(reader).problems == ()


def test_second_writer_gets_a_busy_error(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(clustered_codes(5, 8, 0), make_keys(5))
        hurried = LocalIndex(folder, Store(folder / FILE, wait=0.1))
        with index.store.writing():
            with pytest.raises(InputError, match=r"Another process is writing to .*; wait until it is done"):
                hurried.add(clustered_codes(5, 8, 1), make_keys(5, 5))
            assert len(hurried.search(clustered_codes(1, 8, 0), 9)[0]) == 5  # reading goes on
        hurried.add(clustered_codes(5, 8, 1), make_keys(5, 5))
        hurried.close()
        assert len(index) == 10


def fill_until_error(index: LocalIndex, sentence: str) -> int:
    """Add batches until the disk is full; return how many were committed."""
    for batch in range(1000):
        try:
            index.add(clustered_codes(200, 8, batch), make_keys(200, 200 * batch))
        except InputError as error:
            if sentence not in str(error):
                raise
            return batch
    raise AssertionError("the disk was never full")


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.store.run("PRAGMA max_page_count = 30")
        committed = fill_until_error(index, "There is no space left")
        assert verify(index).problems == ()
        assert len(index) == 200 * committed > 0
        index.store.run("PRAGMA max_page_count = 100000")  # room is made
        index.add(clustered_codes(200, 8, committed), make_keys(200, 200 * committed))
        database = np.concatenate([clustered_codes(200, 8, batch) for batch in range(committed + 1)])
        near = codes.top_k(clustered_codes(4, 8, 77), database, 5)
        found = index.search(clustered_codes(4, 8, 77), 5)
        assert [[match.item_id for match in matches] for matches in found] == near.indices.tolist()


def test_write_refused_by_the_system_loses_nothing(tmp_path: Path) -> None:
    """The limit on the size of a file stands for a full disk: the kernel itself refuses the write."""
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(200, 8, 0), make_keys(200))
    script = f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_faults import fill_until_error
        from proxyhash.index.local.index import LocalIndex
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        index = LocalIndex.open_folder(Path({str(tmp_path / "i")!r}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        print(fill_until_error(index, "is safe"), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    with LocalIndex.open_folder(tmp_path / "i") as index:
        assert verify(index).problems == ()
        assert len(index) == 200 * max(1, int(done.stdout))


def test_read_only_folder_can_be_searched() -> None:
    with TemporaryDirectory() as parent:  # not pytest's, which is not readable by other users
        Path(parent).chmod(0o755)
        folder = Path(parent) / "i"
        with LocalIndex.open_folder(folder, bits=64) as index:
            index.add(clustered_codes(7, 8, 0), make_keys(7))
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        with as_nobody():
            with LocalIndex.open_folder(folder) as index:
                assert len(index.search(clustered_codes(1, 8, 0), 99)[0]) == 7
                with pytest.raises(InputError, match=r"index.sqlite cannot be written to; check who owns the folder"):
                    index.add(clustered_codes(1, 8, 1), ["new"])
                assert verify(index).ok
            with pytest.raises(InputError, match="Cannot make"):
                Index.open(folder / "new", bits=64)
        folder.chmod(0o755)


def test_damaged_block_is_reported_by_search_and_verify(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(50, 8, 0), make_keys(50))
        index.store.run("UPDATE blocks SET codes = zeroblob(length(codes))")
        with pytest.raises(InputError, match="is damaged: block 0 does not match its checksum"):
            index.search(clustered_codes(1, 8, 0))
        problems = verify(index).problems
        assert "block 0 does not match its checksum; restore a backup" in problems[0]
        assert problems[1:] == ("50 items have no code.",)


def test_missing_rows_are_reported_by_search_and_verify(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(50, 8, 0), make_keys(50))
        index.store.run("DELETE FROM items WHERE item_id = 3")
        assert verify(index).problems == ("1 codes have no item.",)
        with pytest.raises(InputError, match="1 codes have no item; restore a backup"):
            index.search(clustered_codes(1, 8, 0), 50)


def test_damaged_pages_are_reported(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(3000, 8, 0), make_keys(3000))
    path = tmp_path / "i" / FILE
    with path.open("rb+") as handle:
        handle.seek(8192 * 3)
        handle.write(np.random.default_rng(0).bytes(path.stat().st_size - 8192 * 4))
    with pytest.raises(InputError, match="damaged"):
        Index.open(tmp_path / "i").search(clustered_codes(1, 8, 0))


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" * 99])
def test_files_that_are_no_database_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match="is not an index: it is not a database at all"):
        Index.open(tmp_path)


def test_other_databases_and_later_formats_are_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("CREATE TABLE mine(x)")
    connection.commit()
    with pytest.raises(InputError, match="is a database, but not an index of proxyhash"):
        Index.open(tmp_path)
    connection.close()
    Index.open(tmp_path / "later", bits=8).close()
    connection = sqlite3.connect(tmp_path / "later" / FILE)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(InputError, match=r"has the format proxyhash.index/7 and needs proxyhash 0.2 or later"):
        Index.open(tmp_path / "later")


def test_invalid_locations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no index at .*/none"):
        Index.open(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other things than an index"):
        Index.open(tmp_path, bits=64)
    with pytest.raises(InputError, match="Cannot make"):
        Index.open(tmp_path / "notes.txt" / "i", bits=64)
    with pytest.raises(InputError, match="bits must be at least 1"):
        Index.open(tmp_path / "i", bits=0)
    with pytest.raises(InputError, match="at most 4096 bits"):
        Index.open(tmp_path / "i", bits=5000)


def test_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    assert len(Index.open(tmp_path, bits=64)) == 0
