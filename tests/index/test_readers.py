"""Readers beside writers, compact, upgrade, migration and backup: every answer is one committed state."""

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.image_groups import ImageReader
from helpers.index_workers import CODES, IMAGES, JOBS, REFUSALS, Events, Plan, Site, Workers, final_problems
from helpers.release_0_1 import index_folder, read_json
from helpers.stamped_groups import GroupReader, GroupWriter, Progress, lost_changes, states_of
from proxyhash import Index, InputError

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

    def stop(self, after: float = 0.0) -> None:
        self._stopped.wait(after)
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def check_events(site: Site, *, min_searches: int) -> None:
    events = list(Events(site).new())
    assert [event for event in events if "wrong" in event or "error" in event] == []
    assert sum(event.get("did") == "search" for event in events) >= min_searches
    assert final_problems(site) == []


def test_threads_of_one_process_see_whole_changes(tmp_path: Path) -> None:
    groups = 12
    progress, ledger = Progress(tmp_path / "progress", groups), tmp_path / "ledger"
    with Index.open(tmp_path / "i", bits=64) as index, Index.open(tmp_path / "i") as other:
        writer = GroupWriter(index, progress, range(groups), ledger)
        writer.fill()
        readers = [
            GroupReader(index, progress, (1,)),
            GroupReader(index, progress, (2,)),
            GroupReader(other, progress, (3,)),
        ]
        loops = Loops([writer.step, *(reader.step for reader in readers[:2]), readers[2].read_all])
        loops.stop(after=2.0)
        assert min(loops.counts) > 10
        assert lost_changes(states_of(index, groups), [ledger]) == []


def test_processes_see_whole_changes_during_compact_and_backup(tmp_path: Path) -> None:
    names = ("writer-1", "writer-2", "reader-1", "reader-2")
    site = Site.create(tmp_path / "site", Plan(groups=24, image_groups=0, pause=0.002, names=names))
    workers = Workers(site)
    workers.start()
    try:
        wait_until_all_work(site, names)
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            for job in ("compact", "backup", "verify"):
                JOBS[job](site, CODES)
    finally:
        workers.stop()
    assert workers.deaths == []
    check_events(site, min_searches=50)


def wait_until_all_work(site: Site, names: Sequence[str]) -> None:
    """Wait until each process has done something."""
    events, seen = Events(site), set()
    until = time.monotonic() + 60
    while seen != set(names):
        assert time.monotonic() < until, f"Only {seen} began."
        seen |= {event["name"] for event in events.new()}
        time.sleep(0.05)


@pytest.mark.parametrize("jobs", [("upgrade",), ("upgrade", "compact"), ("upgrade", "backup"), ("upgrade", "other upgrade")])
def test_answers_are_of_one_model_during_upgrades(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    site = Site.create(tmp_path / "site", Plan(groups=1, image_groups=8, pause=0.0))
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
        loops.stop()
    assert min(loops.counts) > 0
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
    readers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    answers = [reader.communicate("begin\n")[0].splitlines() for reader in readers]  # type: ignore[var-annotated]
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    nearest = [[matches["distances"], matches["keys"]] for matches in expected["nearest"]]
    assert [[json.loads(line) for line in lines] for lines in answers] == [[nearest] * 3] * 3


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
    check_events(site, min_searches=1000)
