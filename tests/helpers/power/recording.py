"""Workloads under the recorder, and checks of what a loss of power leaves of their files."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers.power.replay import VARIANTS, Disk, Kind, Operation, Tree, digest, read_log, read_tree, write_tree

SOURCE = Path(__file__).with_name("record.c")
WRITE, SYNC, NAME = 1, 2, 3  # kinds of operations that can fail, and modes of failure, as in record.c
ONCE, STICKY, SHORT = 0, 1, 2
Mark = dict[str, Any]
Check = Callable[[Path, Sequence[Mark], Mark | None], None]
"""Checks a folder, given what was acknowledged before the cut, and what is acknowledged next (None at the end)."""


@cache
def recorder() -> Path:
    """Compile the recorder; without Linux or a compiler, the test is skipped."""
    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("the simulation of power loss needs Linux and a C compiler (cc)")
    library = Path(tempfile.mkdtemp(prefix="power-")) / "record.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the recorder cannot be compiled: {done.stderr[-300:]}")
    return library


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder, in memory if possible: the checks sync thousands of files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None, prefix="power-") as folder:
        yield Path(folder).resolve()


def recorded_environment(root: Path, log: Path | None) -> dict[str, str]:
    """Return the environment of a process whose operations below `root` are recorded, and can be made to fail."""
    return os.environ | {
        "LD_PRELOAD": str(recorder()),
        "POWER_ROOT": str(root),
        "POWER_LOG": str(log or ""),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def acknowledge(**mark: Any) -> None:
    """Write to the record that everything so far was acknowledged; without a recorder, do nothing."""
    library = ctypes.CDLL(None)
    if hasattr(library, "power_mark"):
        library.power_mark(json.dumps(mark).encode())


def arm(kind: int, nth: int, number: int = 0, mode: int = ONCE) -> None:
    """Let the nth operation of a kind fail in this process, with a number of `errno`; 0 only counts."""
    ctypes.CDLL(None).power_fail(ctypes.c_int(kind), ctypes.c_long(nth), ctypes.c_int(number), ctypes.c_int(mode))


def disarm() -> int:
    """Let all operations succeed again; return how many there were of the kind."""
    count: int = ctypes.CDLL(None).power_fail(ctypes.c_int(0), ctypes.c_long(0), ctypes.c_int(0), ctypes.c_int(0))
    return count


@dataclass(frozen=True)
class Recording:
    """Operations of one workload, the folder before it, and the folder itself."""

    root: Path
    initial: Tree
    operations: list[Operation]

    def check_complete(self) -> None:
        """Check that the record accounts for every byte that the workload wrote."""
        disk = Disk(self.root, self.initial, is_journaling=False)
        for operation in self.operations:
            disk.apply(operation)
        replayed, real = disk.tree("all", "kept", Random(0)), read_tree(self.root)
        different = [str(path) for path in replayed.keys() | real.keys() if replayed.get(path, 0) != real.get(path, 0)]
        assert not different, f"the record does not account for {sorted(different)[:5]}"

    def marks(self) -> list[tuple[int, Mark]]:
        """Return all acknowledgements and the operations that they are."""
        operations = enumerate(self.operations)
        return [(number, json.loads(each.first)) for number, each in operations if each.kind is Kind.MARK]


def record(command: Sequence[str], root: Path) -> Recording:
    """Run a Python module with arguments under the recorder; `root` holds what was there before."""
    initial = read_tree(root)
    with tempfile.TemporaryDirectory() as outside:
        log = Path(outside) / "log"
        arguments = [sys.executable, "-m", *command]
        done = subprocess.run(
            arguments, env=recorded_environment(root, log), capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, f"{command} failed:\n{done.stderr[-3000:]}"
        recording = Recording(root, initial, read_log(log))
    recording.check_complete()
    return recording


@dataclass(frozen=True)
class Counts:
    """What was checked: recorded operations and fsyncs, cut points, distinct states of the disk; and what was wrong."""

    operations: int
    syncs: int
    cuts: int
    states: int
    failures: tuple[str, ...]


def check_cuts(recording: Recording, check: Check, *, seed: int, max_cuts: int | None = None) -> Counts:
    """Cut the power after operations, and check all variants of what is left; at most `max_cuts`, syncs and marks first."""
    chosen = _choose_cuts(recording, max_cuts, seed)
    disks = [Disk(recording.root, recording.initial, is_journaling=journaling) for journaling in (False, True)]
    marks = recording.marks()
    seen: set[tuple[int, bytes]] = set()
    failures: list[str] = []
    with scratch_folder() as scratch:
        for number, operation in enumerate(recording.operations):
            for disk in disks:
                disk.apply(operation)
            if number not in chosen:
                continue
            before = [mark for at, mark in marks if at <= number]
            following = next((mark for at, mark in marks if at > number), None)
            for variant, tree in _states(disks, seed, number):
                state = (len(before), digest(tree))
                if state in seen:
                    continue
                seen.add(state)
                problem = _problem(scratch / "state", tree, check, before, following)
                if problem:
                    cut = f"cut after operation {number} ({operation.kind.name}), {variant}, seed {seed}"
                    failures.append(f"{cut}: {problem}")
    kinds = [operation.kind for operation in recording.operations]
    return Counts(_count_changes(recording), kinds.count(Kind.SYNC), len(chosen), len(seen), tuple(failures))


def _states(disks: list[Disk], seed: int, number: int) -> Iterator[tuple[str, Tree]]:
    for kind, disk in zip(("strict", "journaling"), disks, strict=True):
        for names, data in VARIANTS:
            random = Random(f"{seed}/{number}/{kind}/{data}")
            yield f"{kind} disk, names: {names}, data: {data}", disk.tree(names, data, random)


def _problem(folder: Path, tree: Tree, check: Check, before: list[Mark], following: Mark | None) -> str | None:
    """Return what is wrong with a state, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    write_tree(tree, folder)
    try:
        check(folder, before, following)
    except Exception as error:  # every error is a finding
        return f"{type(error).__name__}: {str(error)[:600]}"
    return None


def _changing(recording: Recording) -> list[int]:
    """Return the operations after which a cut can leave something else than before."""
    disk = Disk(recording.root, recording.initial, is_journaling=False)
    return [number for number, operation in enumerate(recording.operations) if disk.apply(operation)]


def _count_changes(recording: Recording) -> int:
    return len(_changing(recording)) - len(recording.marks())


def _choose_cuts(recording: Recording, max_cuts: int | None, seed: int) -> set[int]:
    numbers = _changing(recording)
    if max_cuts is None or len(numbers) <= max_cuts:
        return set(numbers)
    marks = [number for number in numbers if recording.operations[number].kind is Kind.MARK]
    others = [number for number in numbers if recording.operations[number].kind is not Kind.MARK]
    first = marks[: max_cuts // 2]
    return {*first, *Random(seed).sample(others, max_cuts - len(first))}
