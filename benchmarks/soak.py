"""Soak test of the local index: an hour of writers, readers and maintenance, with processes killed at random.

python benchmarks/soak.py                       an hour; the record is results/soak.json, the figure results/soak.png
python benchmarks/soak.py --minutes 2 --record /tmp/soak.json

Six processes share two indexes: about 20,000 codes with labels, and 300 images that are upgraded from model to model. Two
writers, two readers and the maintenance (compact, upgrade, backup, verify; also two at a time) are killed with SIGKILL at
random and started again. One process reads and writes from beginning to end; it shows whether memory grows. Readers check
every answer. Writers sync each change to a ledger before it begins and after it was acknowledged; at the end, the indexes
are compared with the ledgers.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from scipy.stats import theilslopes

from proxyhash.utils.atomic_io import atomic_write
from reporting import Row, record, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the workload is shared with the tests of readers

from helpers.image_groups import MEMBERS as IMAGE_MEMBERS
from helpers.index_workers import Events, Plan, Site, Workers, final_problems
from helpers.stamped_groups import MEMBERS, read_ledger

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Soak test of the local index"
SAMPLE_SECONDS = 10.0
IMAGES = 300
PAUSE = 0.2  # mean seconds between operations of a process; all of them take about 60 % of a core
KILL_AFTER = {"writer-1": 45.0, "reader-1": 45.0, "writer-2": 150.0, "reader-2": 150.0, "maintenance": 300.0}
WARM_UP = 0.2  # share of the run before the part that must be flat
MIN_FLAT_MINUTES = 10  # a shorter run says nothing about growth
LATENCIES = {"search": ("search",), "add": ("add", "replace")}  # of the codes


@dataclass
class Series:
    """Samples over time: seconds since the start, and a list of values for each name; None where there is none."""

    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def append(self, seconds: float, sample: dict[str, float]) -> None:
        """Append one sample."""
        for name in sample.keys() - self.values.keys():
            self.values[name] = [None] * len(self.seconds)
        self.seconds.append(round(seconds, 1))
        for name, values in self.values.items():
            values.append(sample.get(name))

    def growth(self, name: str) -> float:
        """Return the growth over the run after the warm-up, as a share of the median, by a robust linear fit (Theil-Sen)."""
        points = [(x, y) for x, y in zip(self.seconds, self.values.get(name, []), strict=False) if y is not None]
        points = [(x, y) for x, y in points if x >= WARM_UP * self.seconds[-1]]
        if len(points) < 3:
            return 0.0
        x, y = np.array(points).T
        grown = float(theilslopes(y, x)[0] * (x[-1] - x[0]))
        return grown / max(float(np.median(y)), 1e-9)


@dataclass
class Outcome:
    """Counts of operations and of texts of errors, and series of a run."""

    counts: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    series: Series = field(default_factory=Series)
    cpu_share: float = 0.0
    seconds: float = 0.0

    def count(self, event: dict[str, Any]) -> None:
        """Count one event of a process."""
        kind = next(kind for kind in ("did", "refused", "wrong", "error") if kind in event)
        counts = {"did": self.counts, "refused": self.refused, "wrong": self.wrong, "error": self.errors}[kind]
        text = f"{event['index']}: {event[kind]}"
        counts[text] = counts.get(text, 0) + 1


def soak(folder: Path, plan: Plan, minutes: float, progress: Console) -> Outcome:
    """Run all processes for some minutes, sample them, and check the indexes at the end."""
    site = Site.create(folder, plan)
    workers, events, outcome = Workers(site), Events(site), Outcome()
    start, cpu = time.monotonic(), _cpu_seconds()
    workers.start()
    try:
        while (now := time.monotonic() - start) < 60 * minutes:
            if now >= SAMPLE_SECONDS * (1 + len(outcome.series.seconds)):
                outcome.series.append(now, _sample(workers, list(events.new()), outcome))
                _say(progress, outcome)
            workers.tend()
            time.sleep(0.1)
    finally:
        workers.stop()
    outcome.seconds = time.monotonic() - start
    outcome.cpu_share = (_cpu_seconds() - cpu) / outcome.seconds
    for event in events.new():
        outcome.count(event)
    outcome.errors |= dict.fromkeys(workers.deaths, 1)
    outcome.kills = workers.kills
    outcome.lost = final_problems(site)
    outcome.changes = _count_changes(site)
    return outcome


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _sample(workers: Workers, events: Sequence[dict[str, Any]], outcome: Outcome) -> dict[str, float]:
    """Count new events; return the memory of processes, sizes of files, and latencies of these events."""
    sample: dict[str, float] = {}
    for event in events:
        outcome.count(event)
    for name, process in workers.running.items():
        if resident := _resident(process.pid):
            sample[f"memory of {name}, MB"] = round(resident / 1e6, 1)
    for which in workers.site.indexes:
        folder = workers.site.index(which)
        sample[f"size of {which}, MB"] = round(_bytes(folder) / 1e6, 3)
        sample[f"log of {which}, MB"] = round(_bytes(folder, "*-wal") / 1e6, 3)
        present = workers.site.progress(which).acknowledged % 2
        sample[f"groups of {which}"] = float(present.sum())
    for name, operations in LATENCIES.items():
        chosen = (event for event in events if event["index"] == "codes" and event.get("did") in operations)
        times = [1000 * event["seconds"] for event in chosen if not event["first"]]
        if times:
            median, p99 = np.percentile(times, [50, 99]).round(3).tolist()
            sample |= {f"{name}, median ms": median, f"{name}, p99 ms": p99}
    return sample


def _resident(process: int) -> int:
    """Return the resident bytes of a process, 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def _bytes(folder: Path, pattern: str = "*") -> int:
    total = 0
    for path in folder.rglob(pattern):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # deleted meanwhile
            continue
    return total


def _count_changes(site: Site) -> dict[str, int]:
    """Return how many changes the ledgers hold: acknowledged ones, and those in flight at a kill or refused."""
    lines = [line.split() for which in site.indexes for ledger in site.ledgers(which) for line in ledger.open()]
    begun, done = (sum(words[:1] == [event] for words in lines) for event in ("begin", "done"))
    states = [states for which in site.indexes for ledger in site.ledgers(which) for states in read_ledger(ledger).values()]
    unknown = sum(not state.is_known for state in states)
    return {"acknowledged": done, "in flight or refused": begun - done, "groups of unknown state at the end": unknown}


def _say(progress: Console, outcome: Outcome) -> None:
    done, errors, wrong = (sum(counts.values()) for counts in (outcome.counts, outcome.errors, outcome.wrong))
    counts = f"{done:,} operations, {errors:,} errors, {wrong:,} wrong answers"
    progress.print(f"[dim]{outcome.series.seconds[-1]:,.0f} s: {counts}[/dim]", highlight=False)


def rows(outcome: Outcome, minutes: float) -> Iterator[Row]:
    """Return what must be zero, what must be flat, and counts."""
    total = ", ".join(f"{count:,} x {name}" for name, count in sorted(outcome.counts.items()))
    for name, problems in {
        "errors": outcome.errors,
        "wrong answers": outcome.wrong,
        "acknowledged changes lost, or damage, at the end": dict.fromkeys(outcome.lost, 1),
    }.items():
        note = next(iter(problems)).strip().splitlines()[-1][:200] if problems else ""
        yield Row(name, sum(problems.values()), "0", not problems, outcome.seconds, note=note)
    changes = ", ".join(f"{count:,} {name}" for name, count in outcome.changes.items())
    yield Row("changes in the ledgers", outcome.changes["acknowledged"], "", True, 0.0, note=changes)
    yield Row("operations", sum(outcome.counts.values()), "", True, 0.0, note=total)
    refused = ", ".join(f"{count:,} x {text}" for text, count in outcome.refused.items())
    yield Row("refused, to be tried again", sum(outcome.refused.values()), "", True, 0.0, note=refused)
    kills = ", ".join(f"{count} x {name}" for name, count in sorted(outcome.kills.items()))
    yield Row("kills", sum(outcome.kills.values()), "", True, 0.0, note=kills)
    yield Row("CPU time, share of a core", outcome.cpu_share, "", True, 0.0)
    for name, limit in FLAT.items():
        yield _flat_row(outcome.series, name, limit, minutes)


FLAT = {  # largest growth in percent over the run after the warm-up
    "memory of steady, MB": 5,
    "size of codes, MB": 5,
    "size of images, MB": 5,
    "log of codes, MB": 10,
    "search, median ms": 10,
    "search, p99 ms": 20,
    "add, median ms": 10,
    "add, p99 ms": 20,
    "groups of codes": 5,
}


def _flat_row(series: Series, name: str, limit: float, minutes: float) -> Row:
    growth = 100 * series.growth(name)
    values = [value for value in series.values.get(name, []) if value is not None]
    note = f"median {np.median(values):,.4g}, largest {max(values):,.4g}" if values else "no samples"
    if minutes < MIN_FLAT_MINUTES:
        return Row(f"growth of {name}, %", growth, "", True, 0.0, note=f"{note}; too short a run for a target")
    return Row(f"growth of {name}, %", growth, f"< {limit}", growth < limit, 0.0, note=note)


def save_figure(outcome: Outcome, path: Path) -> None:
    """Draw memory, sizes and latencies over time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
    with rc_context(style):
        figure = Figure(figsize=(12, 7), layout="constrained")
        figure.suptitle(f"{TITLE}: {outcome.seconds / 60:.0f} minutes, {sum(outcome.kills.values())} kills")
        memory, sizes, search, add = figure.subplots(2, 2, sharex=True).flat
        _plot(memory, outcome.series, "memory of ", ", MB", "resident memory, MB")
        _plot(sizes, outcome.series, "size of ", ", MB", "folder and log on disk, MB")
        _plot(sizes, outcome.series, "log of ", ", MB", "folder and log on disk, MB", prefix="log of ")
        _plot(search, outcome.series, "search, ", " ms", "search of codes, ms, logarithmic", logarithmic=True)
        _plot(add, outcome.series, "add, ", " ms", f"add of {MEMBERS} codes, ms, logarithmic", logarithmic=True)
        for axes in (search, add):
            axes.set(xlabel="minutes")
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=110, format="png")


def _plot(
    axes: "Axes", series: Series, start: str, end: str, title: str, *, prefix: str = "", logarithmic: bool = False
) -> None:
    """Draw all series whose names start and end so."""
    minutes = np.array(series.seconds) / 60
    if logarithmic:
        axes.set_yscale("log")
    for name, values in sorted(series.values.items()):
        if name.startswith(start):
            label = prefix + name.removeprefix(start).removesuffix(end)
            axes.plot(minutes, np.array(values, float), linewidth=1, label=label)  # None becomes NaN: a gap
    axes.set(title=title)
    axes.set_xlim(0)
    if not logarithmic:
        axes.set_ylim(0)
    axes.legend(fontsize=8, frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run")
    parser.add_argument("--items", type=int, default=20_000, help="number of codes, about constant")
    parser.add_argument("--pause", type=float, default=PAUSE, help="mean seconds between two operations of a process")
    parser.add_argument("--seed", type=int, default=0, help="seed of all choices, also of the kills")
    parser.add_argument("--record", type=Path, default=Path("results/soak.json"), help="record; the figure is beside it")
    parser.add_argument("--folder", type=Path, help="new folder for the indexes, kept; else a temporary one")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    options = parser.parse_args()
    plan = Plan(
        groups=options.items * 6 // (5 * MEMBERS),  # five of six are present
        image_groups=IMAGES * 6 // (5 * IMAGE_MEMBERS),
        pause=options.pause,
        kill_after=KILL_AFTER,
        seed=options.seed,
    )
    with TemporaryDirectory() as temporary:
        outcome = soak(options.folder or Path(temporary) / "soak", plan, options.minutes, Console(stderr=True))
    measured = list(rows(outcome, options.minutes))
    details = {"parameters": {"minutes": options.minutes, "items": options.items, **asdict(plan)}, **asdict(outcome)}
    with atomic_write(options.record) as path:
        path.write_text(json.dumps({**record(TITLE, measured), **details}, allow_nan=False), encoding="utf-8")
    save_figure(outcome, options.record.with_suffix(".png"))
    report(TITLE, measured, as_json=options.json)
    sys.exit(not all(row.reached for row in measured))


if __name__ == "__main__":
    main()
