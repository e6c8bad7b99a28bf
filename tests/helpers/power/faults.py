"""Failing disks: writes, fsyncs and changes of names that the system refuses.

python -m helpers.power.faults ROOT SCENARIO LIMIT    under the recorder; prints the counts and what was wrong, as JSON

For each kind of fault, the first operation of that kind fails, then the second, and so on until none is left (or `LIMIT`
points per kind of fault, spread evenly).
"""

import errno
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers.codes import clustered_codes, make_keys
from helpers.models import make_vector_model
from helpers.power.file_workloads import text_of
from helpers.power.index_workloads import contents, write_shards
from helpers.power.recording import NAME, ONCE, SHORT, STICKY, SYNC, WRITE, arm, disarm, recorded_environment
from helpers.power.vector_workloads import read_state
from helpers.refinement_reference import check_refined_order
from proxyhash.columns import ColumnsLike
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import compact, verify
from proxyhash.utils.atomic_io import atomic_folder, atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.json_lines import append_json_line, split_json_lines


@dataclass(frozen=True)
class Fault:
    """What fails, how, and whether later operations of the kind fail too."""

    kind: int
    number: int
    mode: int

    def __str__(self) -> str:
        """Return a short description."""
        kind = {WRITE: "write", SYNC: "fsync", NAME: "change of names"}[self.kind]
        mode = {ONCE: "once", STICKY: "from then on", SHORT: "after half of it, and from then on"}[self.mode]
        return f"{errno.errorcode[self.number]} of a {kind} {mode}"


VECTORS = np.random.default_rng(6).normal(size=(15, 12)).astype(np.float32)

FAULTS = (
    Fault(WRITE, errno.EIO, ONCE),
    Fault(WRITE, errno.EIO, STICKY),
    Fault(WRITE, errno.ENOSPC, STICKY),
    Fault(WRITE, errno.ENOSPC, SHORT),
    Fault(SYNC, errno.EIO, ONCE),
    Fault(SYNC, errno.EIO, STICKY),
    Fault(NAME, errno.ENOSPC, STICKY),
)


@dataclass(frozen=True)
class Scenario:
    """A folder that is prepared, work during which a fault happens, and the content before and after."""

    prepare: Callable[[Path], None]
    work: Callable[[Path], object]
    read: Callable[[Path], Any]


# ---- scenarios over an index


def _new_index(folder: Path) -> None:
    with LocalIndex.open_folder(folder / "i", bits=64) as index:
        index.add(clustered_codes(40, 8, 0), make_keys(40), [("a",)] * 40)
        index.remove(make_keys(5))


def _on_index(work: Callable[[LocalIndex], object]) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        with LocalIndex.open_folder(folder / "i") as index:
            work(index)

    return run


def _read_index(folder: Path) -> Any:
    """Return what an index holds; it must be complete, and take another write."""
    if not (folder / "i" / "index.sqlite").exists():
        return None
    with LocalIndex.open_folder(folder / "i", bits=64) as index:
        assert not (problems := verify(index).problems), problems
        found = contents(index)
        index.add(clustered_codes(1, 8, 9), ["after"])
        assert not (problems := verify(index).problems), problems
        assert contents(index).keys() == found.keys() | {"after"}
    return found or None


def _import(index: LocalIndex) -> None:
    from proxyhash.index.code_import import add_shards, find_shards

    add_shards(index, find_shards([index.folder.parent / "shards"])[:1])


def _prepare_import(folder: Path) -> None:
    _new_index(folder)
    write_shards(folder / "shards")


def _new_columns(folder: Path) -> None:
    with LocalIndex.open_folder(folder / "i", bits=64) as index:
        index.add(clustered_codes(20, 8, 0), make_keys(20), columns={"price": list(range(20)), "place": ["a"] * 20})


def _add_columns(index: LocalIndex) -> None:
    """Replace items, so that rows and texts of columns are written and removed, and whole numbers become fractions."""
    columns: ColumnsLike = {"price": [row / 2 for row in range(20)], "place": [f"b {row}" for row in range(20)]}
    index.add(clustered_codes(20, 8, 1), make_keys(20, 10), columns=columns)


def _read_columns(folder: Path) -> Any:
    items = _read_index(folder)
    with LocalIndex.open_folder(folder / "i") as index:
        return items, {item.key: dict(item.columns) for item in index.list_items(limit=1000)}


def _new_refined(folder: Path) -> None:
    model = make_vector_model(12, 64, 0, folder / "model")
    with LocalIndex.open_folder(folder / "i", model=model, refine="code") as index:
        index.add(VECTORS[:10], make_keys(10), keep_vectors=True)


def _add_refined(index: LocalIndex) -> None:
    index.add(VECTORS[10:15], make_keys(5, 8), keep_vectors=True)


def _read_refined(folder: Path) -> Any:
    with LocalIndex.open_folder(folder / "i") as index:
        state = read_state(index)
        refined = check_refined_order(index, state)
        assert refined == state["items"].keys(), "an item has no row"
    return _read_index(folder), state["vectors"]


# ---- scenarios over other files


def _write_text(number: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        with atomic_write(folder / "texts" / "text") as temporary:
            temporary.write_text(text_of(number))

    return run


def _write_folder(number: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        with atomic_folder(folder / "folders" / "folder") as temporary:
            (temporary / "in").mkdir()
            (temporary / "in" / "one").write_text(text_of(number))
            (temporary / "two").write_text(text_of(number))

    return run


def _read_texts(folder: Path) -> Any:
    """Return all visible files; hidden ones are temporary."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "." not in str(path.relative_to(folder))]
    return {str(path.relative_to(folder)): path.read_text() for path in files} or None


def _write_proxies(seed: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        from proxyhash.proxies import design_proxies

        design_proxies(6, 32, "random", seed=seed).save(folder / "proxies.safetensors")

    return run


def _read_proxies(folder: Path) -> Any:
    from proxyhash.proxies import ProxySet

    return ProxySet.load(folder / "proxies.safetensors").seed


def _append(number: int) -> Callable[[Path], None]:
    return lambda folder: append_json_line(folder / "log" / "lines.jsonl", {"number": number, "text": "x" * 2000})


def _read_lines(folder: Path) -> Any:
    path = folder / "log" / "lines.jsonl"
    if not path.exists():
        return None
    found = [json.loads(line)["number"] for line in split_json_lines(path.read_bytes())]
    append_json_line(path, {"number": -1})
    assert [json.loads(line)["number"] for line in split_json_lines(path.read_bytes())] == [*found, -1]
    return found or None


def _nothing(folder: Path) -> None:
    pass


SCENARIOS = {
    "create": Scenario(_nothing, lambda folder: LocalIndex.open_folder(folder / "i", bits=64).close(), _read_index),
    "add": Scenario(
        _new_index, _on_index(lambda index: index.add(clustered_codes(30, 8, 1), make_keys(30, 20))), _read_index
    ),
    "remove": Scenario(_new_index, _on_index(lambda index: index.remove(make_keys(10, 10))), _read_index),
    "compact": Scenario(_new_index, _on_index(compact), _read_index),
    "columns": Scenario(_new_columns, _on_index(_add_columns), _read_columns),
    "refinement": Scenario(_new_refined, _on_index(_add_refined), _read_refined),
    "import": Scenario(_prepare_import, _on_index(_import), _read_index),
    "new text": Scenario(_nothing, _write_text(0), _read_texts),
    "text": Scenario(_write_text(0), _write_text(1), _read_texts),
    "new folder": Scenario(_nothing, _write_folder(0), _read_texts),
    "folder": Scenario(_write_folder(0), _write_folder(1), _read_texts),
    "new line": Scenario(_nothing, _append(0), _read_lines),
    "line": Scenario(_append(0), _append(1), _read_lines),
    "proxies": Scenario(_write_proxies(0), _write_proxies(1), _read_proxies),
}
INDEX_SCENARIOS = ("create", "add", "remove", "compact", "columns", "refinement", "import")
FILE_SCENARIOS = tuple(name for name in SCENARIOS if name not in INDEX_SCENARIOS)


def run_scenario(name: str, root: Path, limit: int) -> tuple[int, list[str]]:
    """Let every operation of a scenario fail in turn; return the number of faults, and what was wrong."""
    scenario = SCENARIOS[name]
    scenario.prepare(_folder(root / "before"))
    shutil.copytree(root / "before", root / "after")
    scenario.work(root / "after")
    before, after = _read_copy(scenario, root / "before"), _read_copy(scenario, root / "after")
    points, problems = 0, []
    for fault in FAULTS:
        for nth in _points(scenario, root, fault, limit):
            points += 1
            problem = _try(scenario, root, fault, nth, before, after)
            if problem:
                problems.append(f"{name}, {fault}, number {nth}: {problem}")
    return points, problems


def _folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _read_copy(scenario: Scenario, folder: Path) -> Any:
    """Return what a folder holds, and leave it as it is."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return scenario.read(copy)


def _points(scenario: Scenario, root: Path, fault: Fault, limit: int) -> Iterator[int]:
    """Yield which operations fail: all of them, or some that are spread evenly."""
    _restore(root)
    arm(fault.kind, 0)
    scenario.work(root / "work")
    count = disarm()
    chosen = min(limit, count)
    yield from sorted({1 + round(step * (count - 1) / max(1, chosen - 1)) for step in range(chosen)})


def _restore(root: Path) -> Path:
    """Bring back the prepared folder."""
    shutil.rmtree(root / "work", ignore_errors=True)
    shutil.copytree(root / "before", root / "work")
    return root / "work"


def _try(scenario: Scenario, root: Path, fault: Fault, nth: int, before: Any, after: Any) -> str | None:
    """Make one operation fail; return what is wrong afterwards, or None."""
    folder = _restore(root)
    error: Exception | None = None
    arm(fault.kind, nth, fault.number, fault.mode)
    try:
        scenario.work(folder)
    except Exception as raised:
        error = raised
    finally:
        disarm()
    if error is not None and not is_sentence(error):
        return f"not one sentence: {type(error).__name__}: {error}"
    try:
        found = _read_copy(scenario, folder)
        assert found == after or (error is not None and found == before), f"read {str(found)[:300]} after: {error}"
        if found == before:  # the work can be repeated once the disk works again
            scenario.work(folder)
            found = _read_copy(scenario, folder)
            assert found == after, f"read {str(found)[:300]} after the work was repeated"
    except (InputError, AssertionError, OSError, sqlite3.Error) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def is_sentence(error: Exception) -> bool:
    """Return whether an error is an `InputError` of one line that ends with a full stop."""
    text = str(error)
    return isinstance(error, InputError) and "\n" not in text and text.endswith(".") and "None" not in text


def inject(root: Path, scenarios: Sequence[str], limit: int) -> tuple[int, list[str]]:
    """Run scenarios in a process of their own; return the number of faults, and what was wrong."""
    arguments = [sys.executable, "-m", "helpers.power.faults", str(root), ",".join(scenarios), str(limit)]
    environment = recorded_environment(root, None)
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    points, problems = json.loads(done.stdout.splitlines()[-1])
    return points, problems


if __name__ == "__main__":
    total = 0
    wrong: list[str] = []
    for each in sys.argv[2].split(","):
        points, problems = run_scenario(each, _folder(Path(sys.argv[1]) / "scenario"), int(sys.argv[3]))
        total, wrong = total + points, wrong + problems
    print(json.dumps([total, wrong]))
