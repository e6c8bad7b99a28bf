"""Processes that write, read and maintain two indexes at the same time, and are killed at random.

One index holds groups of codes with stamps, the other one groups of images, which are upgraded from model to model.
`python -m helpers.index_workers FOLDER NAME RUN` is one process, until the file `stop` is in the folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from helpers import image_groups, stamped_groups
from helpers.image_groups import ImageGroups, ImageReader, ImageWriter, make_image_groups
from helpers.stamped_groups import GroupReader, GroupWriter, Operation, Progress, WrongAnswerError, timed
from proxyhash.index.local.index import LocalIndex
from proxyhash.utils.errors import InputError

CODES, IMAGES = "codes", "images"
IMAGE_USERS = ("writer-2", "reader-2", "steady")  # the first one writes; others use only the codes, and load no torch
REFUSALS = re.compile(  # errors that a program may get beside others, and after which it tries again
    r"Another process (is writing|is upgrading|took over)|(replaced or )?moved to another model meanwhile|nothing to upgrade"
)
REOPENS = 0.01  # share of steps after which a process opens its index again
Step = Callable[[], Operation]
User = GroupWriter | GroupReader | ImageReader


@dataclass(frozen=True)
class Plan:
    """Sizes, seed and pace of the work.

    Attributes
    ----------
    groups, image_groups
        Number of groups of codes and of images; five of six are present at a time. 0 image groups: no such index.
    pause
        Mean seconds between two operations of a process; maintenance pauses ten times as long.
    kill_after
        Mean seconds after which a process is killed, by its name; processes that are not listed live on.
    seed
        Seed of all choices.
    """

    groups: int
    image_groups: int
    pause: float
    kill_after: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    names: Sequence[str] = ("writer-1", "writer-2", "reader-1", "reader-2", "steady", "maintenance")

    @property
    def writers(self) -> list[str]:
        """Return the names of the processes that write codes, each to groups of its own."""
        return [name for name in self.names if name.startswith(("writer", "steady"))]


@dataclass(frozen=True)
class Site:
    """Folder of the two indexes, and of the plan, ledgers and logs of the processes."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, plan: Plan) -> "Site":
        """Create both indexes, and add five of six groups."""
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps(asdict(plan)))
        site = cls(folder)
        with LocalIndex.open_folder(site.index(CODES), bits=stamped_groups.BITS):
            for name in plan.writers:
                site.code_writer(name, 0).fill()
        if plan.image_groups:
            images = make_image_groups(folder / "images", plan.image_groups)
            with LocalIndex.open_folder(site.index(IMAGES), model=images.models[0]):
                site.image_writer(0).fill()
        return site

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return Plan(**json.loads((self.folder / "plan.json").read_text()))

    @property
    def indexes(self) -> list[str]:
        """Return the names of the indexes."""
        return [CODES, IMAGES] if self.plan.image_groups else [CODES]

    @property
    def images(self) -> ImageGroups:
        """Return the images and models."""
        return ImageGroups(self.folder / "images")

    def index(self, which: str) -> Path:
        """Return the folder of an index."""
        return self.folder / f"{which}.index"

    def open(self, which: str) -> LocalIndex:
        """Open an index."""
        return LocalIndex.open_folder(self.index(which))

    def progress(self, which: str) -> Progress:
        """Return the states of all groups of an index."""
        return Progress(self.folder / f"{which}.progress", self.plan.groups if which == CODES else self.plan.image_groups)

    def ledgers(self, which: str) -> list[Path]:
        """Return the ledgers of an index."""
        return sorted(self.folder.glob(f"{which}-*.ledger"))

    def code_writer(self, name: str, run: int) -> GroupWriter:
        """Return a writer of codes, for its own share of the groups."""
        plan = self.plan
        number = plan.writers.index(name)
        own, ledger = range(number, plan.groups, len(plan.writers)), self.folder / f"{CODES}-{name}.ledger"
        return GroupWriter(self.open(CODES), self.progress(CODES), own, ledger, (plan.seed, number, run))

    def image_writer(self, run: int) -> ImageWriter:
        """Return the writer of images."""
        ledger = self.folder / f"{IMAGES}-writer.ledger"
        return ImageWriter(self.open(IMAGES), self.progress(IMAGES), self.images, ledger, (self.plan.seed, run))

    def reader(self, which: str, seed: Sequence[int] = (0,), folder: Path | None = None) -> GroupReader | ImageReader:
        """Return a reader of an index, or of a copy of it in another folder."""
        index = LocalIndex.open_folder(folder or self.index(which))
        if which == CODES:
            return GroupReader(index, self.progress(CODES), seed)
        return ImageReader(index, self.progress(IMAGES), self.images, seed)


class Log:
    """Operations of a process, a line each; a kill loses none that ended, because each line is written at once."""

    def __init__(self, site: Site, name: str) -> None:
        self._file = (site.folder / "logs" / f"{name}.jsonl").open("a", encoding="utf-8", buffering=1)
        self._file.write("\n")  # ends the line that a killed process was at
        self._known: set[tuple[str, str]] = set()

    def attempt(self, which: str, step: Step, job: str | None = None) -> None:
        """Run a step, and log its time, or its error with the text.

        The first operation of a kind reads codes and compiled functions, and is marked.
        """
        event: dict[str, Any] = {"time": time.time(), "index": which}
        try:
            did, seconds = step()
            event |= {"did": did, "seconds": round(seconds, 6), "first": (which, did) not in self._known}
            self._known.add((which, did))
        except WrongAnswerError as error:
            event["wrong"] = str(error)
        except InputError as error:
            event["refused" if REFUSALS.search(str(error)) else "error"] = str(error)
        except Exception:  # every kind of failure is counted, with its text
            event["error"] = traceback.format_exc()
        if job is not None:
            event["job"] = job
        self._file.write(json.dumps(event) + "\n")


class Events:
    """Events of all processes, read from their logs as these grow."""

    def __init__(self, site: Site) -> None:
        self._folder = site.folder / "logs"
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the events since the last call, each with the name of its process; a torn line of a kill is left out."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            complete = content[: content.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(complete)
            for line in complete.splitlines():
                if line.startswith(b"{") and line.endswith(b"}"):
                    yield {"name": path.stem, **json.loads(line)}


def work(site: Site, name: str, run: int) -> None:
    """Do what a process of this name does, until the site is stopped."""
    log, plan = Log(site, name), site.plan
    random = np.random.default_rng((plan.seed, run, *name.encode()))
    if name == "maintenance":
        maintain(site, log, random)
        return
    if name in IMAGE_USERS and IMAGES in site.indexes:
        import proxyhash.models.hasher  # noqa: F401  # loads torch, which is no part of the time of an operation
    users = list(_users(site, name, run))
    steps = [(which, step) for which, user in users for step in _steps(user)]
    while not (site.folder / "stop").exists():
        which, step = steps[int(random.choice(len(steps)))]
        log.attempt(which, step)
        if random.random() < REOPENS:
            for which, user in users:
                user.index.close()
                user.index = site.open(which)
        time.sleep(float(random.exponential(plan.pause)))


def _users(site: Site, name: str, run: int) -> Iterator[tuple[str, User]]:
    """Yield the readers and writers of a process, each with its index."""
    seed = (site.plan.seed, run, *name.encode())
    if name in site.plan.writers:
        yield CODES, site.code_writer(name, run)
    if not name.startswith("writer"):
        yield CODES, site.reader(CODES, seed)
    if IMAGES in site.indexes and name == IMAGE_USERS[0]:
        yield IMAGES, site.image_writer(run)
    if IMAGES in site.indexes and name in IMAGE_USERS[1:]:
        yield IMAGES, site.reader(IMAGES, seed)


def _steps(user: User) -> list[Step]:
    """Return the steps that a process chooses from; frequent ones occur several times."""
    if isinstance(user, ImageReader):
        return [user.step] * 4 + [user.search_by_image] * 2
    if isinstance(user, GroupReader):
        return [*[user.step] * 29, user.read_all]
    return [user.step] * (1 if isinstance(user, ImageWriter) else 9)


def maintain(site: Site, log: Log, random: np.random.Generator) -> None:
    """Compact, upgrade, back up and verify, in turns and at the same time."""
    turns = [turn for turn in TURNS if all(which in site.indexes for _, which in turn)]
    number = int(random.integers(len(turns)))
    with ThreadPoolExecutor(2) as pool:
        while not (site.folder / "stop").exists():
            jobs = turns[number % len(turns)]
            done = [pool.submit(log.attempt, which, partial(_run_job, site, job, which), job) for job, which in jobs]
            for future in done:
                future.result()
            number += 1
            time.sleep(float(random.exponential(10 * site.plan.pause)))


def _run_job(site: Site, job: str, which: str) -> Operation:
    return Operation(*timed(lambda: JOBS[job](site, which)))


def _compact(site: Site, which: str) -> str:
    from proxyhash.index.maintenance import compact

    with site.open(which) as index:
        compact(index)
    return "compact"


def _verify(site: Site, which: str, folder: Path | None = None) -> str:
    from proxyhash.index.maintenance import verify

    with LocalIndex.open_folder(folder or site.index(which)) as index:
        if problems := verify(index).problems:
            raise WrongAnswerError(f"verify reports of {index.folder.name}: {' '.join(problems)}")
    return "verify"


def _upgrade(site: Site, which: str, ahead: int = 1) -> str:
    """Upgrade to the next model but `ahead` - 1."""
    from proxyhash.data import SkippedItems
    from proxyhash.index.upgrade import upgrade
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.storage import fingerprint

    models = site.images.models
    with site.open(which) as index:
        now = [fingerprint(model) for model in models].index(index.model)  # type: ignore[arg-type]  # it has one
        upgrade(index, Hasher.load(models[(now + ahead) % len(models)]), SkippedItems(strict=True))
    return "upgrade"


def _backup(site: Site, which: str) -> str:
    """Back up to the same folder as before, or to a new one, and check the copy."""
    try:
        from proxyhash.index.backup import backup
    except ImportError:
        return "no backup"
    folder = site.folder / "backups" / which
    if time.time_ns() % 4 == 0:
        shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    before = site.progress(which).acknowledged.copy()
    with site.open(which) as index:
        backup(index, folder)
    _verify(site, which, folder)
    reader = site.reader(which, folder=folder)
    reader.read_all(before)
    reader.index.close()
    return "backup"


JOBS: dict[str, Callable[[Site, str], str]] = {
    "compact": _compact,
    "verify": _verify,
    "upgrade": _upgrade,
    "other upgrade": lambda site, which: _upgrade(site, which, 2),
    "backup": _backup,
}
TURNS: list[list[tuple[str, str]]] = [
    [("compact", CODES)],
    [("upgrade", IMAGES)],
    [("backup", CODES)],
    [("verify", IMAGES)],
    [("upgrade", IMAGES), ("compact", IMAGES)],
    [("backup", CODES), ("compact", CODES)],
    [("verify", CODES)],
    [("upgrade", IMAGES), ("other upgrade", IMAGES)],
    [("backup", IMAGES)],
    [("upgrade", IMAGES), ("backup", IMAGES)],
]


@dataclass
class Workers:
    """The processes of a site, started again after each kill."""

    site: Site
    kills: dict[str, int] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)  # of processes that were not killed
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _kill_at: dict[str, float] = field(default_factory=dict)
    _runs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Seed the times of the kills."""
        self._random = np.random.default_rng(self.site.plan.seed)

    def start(self) -> None:
        """Start all processes."""
        for name in self.site.plan.names:
            self._start(name)

    def tend(self) -> None:
        """Kill the processes that are due, and start those again that are not running."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.deaths.append(f"{name} ended with {process.returncode}: {self._last_words(name)}")
                self._start(name)
            elif time.monotonic() >= self._kill_at[name]:
                process.kill()
                process.wait()
                self.kills[name] = self.kills.get(name, 0) + 1
                self._start(name)

    def stop(self) -> None:
        """End all processes after their current operation."""
        (self.site.folder / "stop").touch()
        for name, process in self.running.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.deaths.append(f"{name} did not end within 60 seconds.")
            if process.returncode > 0:
                self.deaths.append(f"{name} ended with {process.returncode}: {self._last_words(name)}")
        self.running.clear()

    def _start(self, name: str) -> None:
        run = self._runs[name] = self._runs.get(name, 0) + 1
        tests = str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "helpers.index_workers", str(self.site.folder), name, str(run)]
        # One thread each: processes that share cores would wait for each other's threads.
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        with (self.site.folder / "logs" / f"{name}.stderr").open("wb") as stderr:
            self.running[name] = subprocess.Popen(command, stderr=stderr, env=environment)
        after = self.site.plan.kill_after.get(name)
        self._kill_at[name] = time.monotonic() + (float(self._random.exponential(after)) if after else np.inf)

    def _last_words(self, name: str) -> str:
        return (self.site.folder / "logs" / f"{name}.stderr").read_text(errors="replace")[-2000:]


def final_problems(site: Site) -> list[str]:
    """Return what is wrong with the indexes after all processes ended: damage, and acknowledged changes that are lost."""
    problems = []
    for which in site.indexes:
        try:
            _verify(site, which)
            shown = _shown(site, which)
        except (InputError, WrongAnswerError) as error:
            problems.append(f"{which}: {error}")
            continue
        problems += [f"{which}: {problem}" for problem in stamped_groups.lost_changes(shown, site.ledgers(which))]
    return problems


def _shown(site: Site, which: str) -> dict[int, int]:
    """Return the state numbers of the groups that are present; images show no stamp, so that theirs is the possible one."""
    with site.open(which) as index:
        if which == CODES:
            return stamped_groups.states_of(index, site.plan.groups)
        query = site.images.codes[0, 0, :1]
        (matches,) = index.range_search(query, image_groups.BITS, with_codes=True, threads=1)
        recorded = stamped_groups.read_ledger(site.ledgers(IMAGES)[0])
        present = image_groups.check_images(site.images, matches)
    never = stamped_groups.Recorded(1, 1)
    states = {group: recorded.get(group, never) for group in present}
    return {group: both.begun if both.begun % 2 else both.done for group, both in states.items()}


if __name__ == "__main__":
    work(Site(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
