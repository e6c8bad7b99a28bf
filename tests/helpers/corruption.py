"""Random damage to files of all formats: every answer must stay right, or be an `InputError`.

    PYTHONPATH=tests:benchmarks python -m helpers.corruption [OUTPUT] --trials 10000

A run that was stopped goes on where it was, if the commit is the same.

A subject is a folder of files and a function that answers from them. A trial copies the folder, damages one file, and asks
again. It fails if the answer is another one, if anything but an InputError is raised, or if it takes too long.
"""

import argparse
import shutil
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash import InputError

MAX_SECONDS = 30
PAGES = (4096, 8192)  # of disks, and of SQLite in our files

Damage = Callable[[np.random.Generator, bytearray, bytes], bytes]


@dataclass(frozen=True)
class Subject:
    """Files of one format: `build(folder, seed)` writes them, `ask(folder)` answers from them.

    `ignored` are names of files that answers do not depend on, such as the card of a model.
    """

    name: str
    build: Callable[[Path, int], None]
    ask: Callable[[Path], Any]
    ignored: tuple[str, ...] = ()


@dataclass
class Outcome:
    """Counts of trials, and a description of each failure."""

    trials: int = 0
    refused: int = 0  # an InputError
    unchanged: int = 0  # the right answer, as the damage hit nothing that matters
    failures: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


def flip_bit(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    return bytes(content)


def change_bytes(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    start = int(random.integers(len(content)))
    count = min(int(random.integers(1, 64)), len(content) - start)
    content[start : start + count] = random.bytes(count)
    return bytes(content)


def truncate(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    return bytes(content[: random.integers(len(content))])


def zero_page(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    start, end = _page(random, len(content))
    content[start:end] = bytes(end - start)
    return bytes(content)


def move_page(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    """Write one page over another, as a disk does that writes to the wrong place."""
    size = _page_size(random)
    source, target = (int(random.integers(-(-len(content) // size))) * size for _ in range(2))
    page = content[source : source + size]
    content[target : target + len(page)] = page
    return bytes(content)


def swap_pages(random: np.random.Generator, content: bytearray, _: bytes) -> bytes:
    size = _page_size(random)
    pages = [content[start : start + size] for start in range(0, len(content), size)]
    first, second = (int(random.integers(len(pages))) for _ in range(2))
    pages[first], pages[second] = pages[second], pages[first]
    return b"".join(pages)


def stale_page(random: np.random.Generator, content: bytearray, other: bytes) -> bytes:
    """Take one page from the other file of the same name, as a disk does that loses a write."""
    start, end = _page(random, len(content))
    page = other[start:end]
    content[start : start + len(page)] = page
    return bytes(content)


def _page(random: np.random.Generator, length: int) -> tuple[int, int]:
    """Return the range of a random page."""
    size = _page_size(random)
    start = int(random.integers(-(-length // size))) * size
    return start, min(start + size, length)


def _page_size(random: np.random.Generator) -> int:
    return int(random.choice(PAGES))


def swap_file(_random: np.random.Generator, _content: bytearray, other: bytes) -> bytes:
    return other


DAMAGES: Mapping[str, Damage] = {
    "bit flipped": flip_bit,
    "bytes changed": change_bytes,
    "truncated": truncate,
    "page zeroed": zero_page,
    "page moved": move_page,
    "pages swapped": swap_pages,
    "page of another file": stale_page,
    "file swapped": swap_file,
}


def run_trials(subject: Subject, trials: int, seed: int, work: Path) -> Outcome:
    """Damage copies of a subject's files and compare the answers with the right one."""
    original, other = work / subject.name / "original", work / subject.name / "other"
    subject.build(original, 0)
    subject.build(other, 1)
    with _copied(original, work) as copy:
        right = subject.ask(copy)
    names = sorted(
        path.relative_to(original)
        for path in original.rglob("*")
        if path.is_file() and path.stat().st_size and not path.name.endswith(subject.ignored or ("\0",))
    )
    outcome = Outcome()
    for trial in range(trials):
        random = np.random.default_rng([seed, trial])
        kind = list(DAMAGES)[trial % len(DAMAGES)]
        name = names[int(random.integers(len(names)))]
        with _copied(original, work) as copy:
            _damage(DAMAGES[kind], random, copy / name, _counterpart(other, name))
            _count(outcome, f"{kind}, {name}, seed [{seed}, {trial}]", subject, copy, right)
        outcome.kinds[kind] += 1
    return outcome


def _damage(damage: Damage, random: np.random.Generator, path: Path, other: Path) -> None:
    path.write_bytes(damage(random, bytearray(path.read_bytes()), other.read_bytes()))


def _counterpart(other: Path, name: Path) -> Path:
    """Return the file of the other folder that has this name, wherever it lies: folders may be named by fingerprints."""
    return other / name if (other / name).is_file() else next(path for path in other.rglob(name.name))


def _count(outcome: Outcome, what: str, subject: Subject, folder: Path, right: Any) -> None:
    outcome.trials += 1
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = subject.ask(folder)
    except InputError as error:
        outcome.refused += 1
        if "\n" in str(error) or not str(error).endswith("."):
            outcome.failures.append(f"{what}: not one sentence: {error}")
    except Exception:
        outcome.failures.append(f"{what}: {traceback.format_exc()[-1500:]}")
    else:
        outcome.unchanged += 1
        if answer != right:
            outcome.failures.append(f"{what}: another answer")


@contextmanager
def _copied(folder: Path, work: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=work) as parent:
        copy = Path(parent) / "copy"
        shutil.copytree(folder, copy)
        yield copy


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Write the record."""
    from helpers.corruption_subjects import SUBJECTS
    from helpers.partial_results import PartialResults
    from reporting import provenance

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path, default=Path("results/corruption.json"))
    parser.add_argument("--trials", type=int, default=10_000, help="in total, spread over the formats")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = PartialResults(options.output.with_suffix(".partial"), provenance())
    count = -(-options.trials // len(SUBJECTS))
    rows = {}
    for subject in SUBJECTS:
        name = f"{subject.name}, {count} trials, seed {options.seed}"
        rows[subject.name] = parts.get(name, partial(_counts, subject, count, options.seed))
        print(f"{subject.name:>20} {rows[subject.name]}", flush=True)
    totals = {key: sum(row[key] for row in rows.values()) for key in ("trials", "refused", "unchanged")}
    totals["failures"] = sum(len(row["failures"]) for row in rows.values())
    parts.finish(options.output, {"seed": options.seed, "total": totals, "subjects": rows})


def _counts(subject: Subject, trials: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        found = run_trials(subject, trials, seed, Path(work))
    return {**vars(found), "kinds": dict(found.kinds)}


if __name__ == "__main__":
    main()
