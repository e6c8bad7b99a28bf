"""Readers beside writers, compact, upgrade, migration and backup: every answer is one committed state."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from helpers.image_groups import ImageReader
from helpers.index_workers import CODES, IMAGES, JOBS, REFUSALS, Events, Plan, Site, Workers, final_problems
from helpers.release_0_1 import index_folder, read_json
from helpers.stamped_groups import GroupReader, GroupWriter, Progress, lost_changes, states_of
from proxyhash import Index, InputError
from proxyhash.index.local.snapshots import Snapshot

READER = """
    import json, sys
    from pathlib import Path
    import numpy as np
    from proxyhash import Index
    folder, queries, k = Path(sys.argv[1]), np.array(json.loads(sys.argv[2]), np.uint8), int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(3):
        with Index.open(folder) as index:
            found = index.search(queries, k)
            print(json.dumps([[[match.distance for match in matches], matches.keys] for matches in found]), flush=True)
"""


class Loops:
    """Threads that repeat steps until they are stopped; the first error of any thread is raised then."""

    def __init__(self, steps: Sequence[Callable[[], object]]) -> None:
        self.counts = [0] * len(steps)
        self._errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(number, step)) for number, step in enumerate(steps)]
        for thread in self._threads:
            thread.start()

    def _repeat(self, number: int, step: Callable[[], object]) -> None:
        try:
            while not self._stopped.is_set():
                step()
                self.counts[number] += 1
        except BaseException as error:
            self._errors.append(error)
            self._stopped.set()

    def stop(self, after: float = 0.0, *, min_count: int = 0) -> None:
        """End the threads after some seconds, and once each has done its step often enough."""
        until = time.monotonic() + after
        while not self._stopped.wait(0.05) and (time.monotonic() < until or min(self.counts) < min_count):
            assert time.monotonic() < until + 60, f"Steps: {self.counts}."
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def check_events(site: Site) -> None:
    assert [event for event in Events(site).new() if "wrong" in event or "error" in event] == []
    assert final_problems(site) == []


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, where there is one: commits are fast there, so that several happen during a search."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def test_threads_of_one_process_see_whole_changes(memory_folder: Path) -> None:
    groups = 4
    progress = Progress(memory_folder / "progress", groups)
    ledgers = [memory_folder / "first.ledger", memory_folder / "second.ledger"]
    with Index.open(memory_folder / "i", bits=64) as index, Index.open(memory_folder / "i") as other:
        writers = [
            GroupWriter(used, progress, range(number, groups, 2), ledger)
            for number, (used, ledger) in enumerate(zip((index, other), ledgers, strict=True))
        ]
        readers = [GroupReader(used, progress, (seed,)) for seed, used in enumerate((index, index, other))]
        loops = Loops([writers[0].step, writers[1].step, readers[0].step, readers[1].read_all, readers[2].step])
        loops.stop(after=2.0, min_count=20)
        assert lost_changes(states_of(index, groups), ledgers) == []


def test_changes_between_search_and_lookup_of_items_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = 4
    progress = Progress(tmp_path / "progress", groups)
    with Index.open(tmp_path / "i", bits=64) as index, Index.open(tmp_path / "i") as other:
        writer = GroupWriter(other, progress, range(groups), tmp_path / "ledger")
        writer.fill()

        def then_replace(search: Callable[..., object]) -> Callable[..., object]:
            def run(*arguments: object, **named: object) -> object:
                hits = search(*arguments, **named)
                for group in range(groups):
                    writer.change(group, present=True)
                return hits

            return run

        for name in ("nearest", "range_search"):
            monkeypatch.setattr(Snapshot, name, then_replace(getattr(Snapshot, name)))
        reader = GroupReader(index, progress)
        for _ in range(5):
            reader.step()


def test_processes_see_whole_changes_during_compact_and_backup(memory_folder: Path) -> None:
    names = ("writer-1", "writer-2")
    site = Site.create(memory_folder / "site", Plan(groups=6, image_groups=0, pause=0.0, names=names))
    workers = Workers(site)
    workers.start()
    reader = site.reader(CODES)
    try:
        wait_until_all_work(site, names)
        loops = Loops([reader.step, *(partial(JOBS[job], site, CODES) for job in ("compact", "backup", "verify"))])
        loops.stop(after=2.0, min_count=10)
    finally:
        workers.stop()
    assert workers.deaths == []
    check_events(site)


def wait_until_all_work(site: Site, names: Sequence[str]) -> None:
    """Wait until each process has done something."""
    events, seen = Events(site), set()
    until = time.monotonic() + 60
    while seen != set(names):
        assert time.monotonic() < until, f"Only {seen} began."
        seen |= {event["name"] for event in events.new()}
        time.sleep(0.05)


@pytest.mark.parametrize("jobs", [("upgrade",), ("upgrade", "compact"), ("upgrade", "backup"), ("upgrade", "other upgrade")])
def test_answers_are_of_one_model_during_upgrades(memory_folder: Path, jobs: tuple[str, ...]) -> None:
    site = Site.create(memory_folder / "site", Plan(groups=1, image_groups=8, pause=0.0))
    readers = [site.reader(IMAGES, (number,)) for number in range(2)]
    assert isinstance(readers[1], ImageReader)
    writer = site.image_writer(1)
    loops = Loops([readers[0].step, readers[1].search_by_image, lambda: unless_refused(writer.step)])
    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                done = [pool.submit(unless_refused, lambda job=job: JOBS[job](site, IMAGES)) for job in jobs]  # type: ignore[misc]
                for future in done:
                    future.result()
    finally:
        loops.stop(min_count=1)
    assert final_problems(site) == []


def unless_refused(step: Callable[[], object]) -> None:
    """Run a step; an error that advises to try again is none, and half a moment is left to others."""
    try:
        step()
    except InputError as error:
        if not REFUSALS.search(str(error)):
            raise
    time.sleep(0.02)


def test_processes_that_open_an_index_of_release_0_1_at_once_give_its_answers(tmp_path: Path) -> None:
    """The first of them migrates it, and the others wait or read the state before."""
    folder, expected = index_folder("clustered-index", tmp_path), read_json("clustered-index/expected.json")
    command = [sys.executable, "-c", textwrap.dedent(READER), str(folder), json.dumps(expected["queries"])]
    command.append(str(expected["k"]))
    readers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    answers = [reader.communicate("begin\n")[0].splitlines() for reader in readers]  # type: ignore[var-annotated]
    assert [reader.returncode for reader in readers] == [0, 0]
    nearest = [[matches["distances"], matches["keys"]] for matches in expected["nearest"]]
    assert [[json.loads(line) for line in lines] for lines in answers] == [[nearest] * 3] * 2


@pytest.mark.slow
def test_killed_processes_leave_whole_changes_for_two_minutes(tmp_path: Path) -> None:
    kill_after = {"writer-1": 10.0, "reader-1": 10.0, "writer-2": 30.0, "reader-2": 30.0, "maintenance": 40.0}
    site = Site.create(tmp_path / "site", Plan(groups=60, image_groups=10, pause=0.01, kill_after=kill_after))
    workers = Workers(site)
    workers.start()
    until = time.monotonic() + 120
    try:
        while time.monotonic() < until:
            workers.tend()
            time.sleep(0.05)
    finally:
        workers.stop()
    assert workers.deaths == []
    assert sum(workers.kills.values()) > 5
    assert sum(event.get("did") == "search" for event in Events(site).new()) > 1000
    check_events(site)
