"""The service under attack: the memory of all its processes, and the answers that an honest client gets meanwhile.

python benchmarks/serve_attacks.py                            every attack for 60 seconds, directly and behind nginx
python benchmarks/serve_attacks.py --only trailers,headers    some attacks
python benchmarks/serve_attacks.py --behind direct --http h11 one setting
python benchmarks/serve_attacks.py --seconds 10 --json

An attack runs in its own process from 127.0.0.2. An honest client searches every 50 ms from 127.0.0.1, in turn on a new
connection and on one that it keeps. Memory is the proportional set size, without pages of files, of the service, its
decoders, its search process and nginx. An attack is held if they grow by less than 300 MB together and the honest client
gets at least 95 % of its answers.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table

from reporting import record

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the attacks are shared with the tests

from helpers.attack_outcome import Outcome, measure_attack
from helpers.attacks import ATTACKS, Target
from helpers.models import make_model
from helpers.nginx import NGINX, running_nginx
from proxyhash.index.local.index import LocalIndex

ITEMS, BITS = 20_000, 64
SETTINGS = ("direct", "nginx")
PROCESS = "from proxyhash.cli.app import main; main()"


def make_index(folder: Path) -> Path:
    """Index random codes under a model, so that the service accepts images too."""
    with LocalIndex.open_folder(folder / "index", model=make_model(BITS, 0, folder / "model")) as index:
        codes = np.random.default_rng(0).integers(0, 256, (ITEMS, BITS // 8), dtype=np.uint8)
        index.add(codes, [f"photos/{number:09d}.jpg" for number in range(ITEMS)])
    return folder / "index"


@contextmanager
def service(index: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Serve an index; give the port and the process id."""
    command = [sys.executable, "-c", PROCESS, "serve", str(index), "--port", "0", "--quiet", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ.copy())
    assert process.stdout is not None
    try:
        url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        yield int(url.rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        process.wait()


def attacked(name: str, index: Path, behind: str, http: str, seconds: float) -> Outcome:
    """Start a new service, with or without nginx, and attack it."""
    if behind == "direct":
        with service(index, "--http", http) as (port, process):
            return _measured(name, port, {"service": process}, seconds)
    with (
        service(index, "--http", http, "--trust-proxy", "127.0.0.1") as (port, process),
        running_nginx(port) as proxy,
    ):
        return _measured(name, proxy.port, {"service": process, "nginx": proxy.pid}, seconds)


def _measured(name: str, port: int, processes: dict[str, int], seconds: float) -> Outcome:
    target = Target(port, code="00" * (BITS // 8))
    for _ in range(600):  # until it answers; the first queries also warm its caches
        outcome = asyncio.run(measure_attack("none", target, processes, 1.0))
        if not outcome.answers.errors:
            break
        time.sleep(0.1)
    return asyncio.run(measure_attack(name, target, processes, seconds))


@dataclass(frozen=True)
class AttackRow:
    """An attack in one setting; sizes are in MB and times in milliseconds."""

    attack: str
    rate: str
    server: str
    seconds: float
    growth: float
    memory: dict[str, tuple[float, float, float]]
    answers: int
    errors: dict[str, int]
    p50: float
    p99: float
    attacker: dict[str, int]
    is_held: bool


def measured_rows(names: list[str], settings: list[str], http: str, seconds: float) -> Iterator[AttackRow]:
    """Measure each attack in each setting."""
    with TemporaryDirectory() as folder:
        index = make_index(Path(folder))
        for name in names:
            for behind in settings:
                yield make_row(name, server_name(behind, http), seconds, attacked(name, index, behind, http, seconds))


def server_name(behind: str, http: str) -> str:
    """Describe a setting by parser and proxy."""
    return f"nginx, {http}" if behind == "nginx" else http


def make_row(name: str, server: str, seconds: float, outcome: Outcome) -> AttackRow:
    """Return the row of an outcome; memory is that before the attack, the highest, and that after it."""
    answers, sizes = outcome.answers, (outcome.before, outcome.peak, outcome.after)
    return AttackRow(
        name,
        f"{ATTACKS[name].what}; {ATTACKS[name].rate}",
        server,
        seconds,
        outcome.growth,
        {group: (sizes[0][group], sizes[1][group], sizes[2][group]) for group in outcome.before},
        len(answers.seconds),
        dict(answers.errors),
        1000 * answers.percentile(0.5),
        1000 * answers.percentile(0.99),
        dict(outcome.attacker),
        outcome.is_held,
    )


def make_table(title: str, rows: list[AttackRow]) -> Table:
    """Return the rows as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("attack", "rate", "server", "seconds"):
        table.add_column(heading)
    for heading in ("growth, MB", "before/peak/after", "answers", "errors", "p50, ms", "p99, ms", ""):
        table.add_column(heading, justify="right")
    for row in rows:
        memory = "; ".join(f"{group} " + "/".join(f"{size:.0f}" for size in sizes) for group, sizes in row.memory.items())
        errors = ", ".join(f"{count} {name}" for name, count in row.errors.items()) or "0"
        cells = (f"{row.growth:.0f}", memory, f"{row.answers:,}", errors, f"{row.p50:.0f}", f"{row.p99:.0f}")
        mark = "[green]ok[/green]" if row.is_held else "[red]MISSED[/red]"
        table.add_row(row.attack, row.rate, row.server, f"{row.seconds:g}", *cells, mark)
    return table


def report(title: str, rows: Iterator[AttackRow], *, as_json: bool) -> None:
    """Print each row as it is measured, then the table or JSON."""
    progress, measured = Console(stderr=True), list[AttackRow]()
    for row in rows:
        measured.append(row)
        progress.print(f"[dim]{row.attack}, {row.server}: {row.growth:.0f} MB, p99 {row.p99:.0f} ms[/dim]", highlight=False)
    if as_json:
        print(json.dumps({**record(title, []), "rows": [asdict(row) for row in measured]}, indent=2))
    else:
        console = Console()
        console.width = max(console.width, 180)
        console.print(make_table(title, measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(name for name in ATTACKS if name != "none"), help="some attacks")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--behind", choices=SETTINGS, help="directly or behind nginx; default: both")
    parser.add_argument("--http", choices=("httptools", "h11"), default="httptools", help="the HTTP parser of uvicorn")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(ATTACKS):
        sys.exit(f"No such attack: {', '.join(sorted(unknown))}; choose from {', '.join(ATTACKS)}.")
    settings = [options.behind] if options.behind else list(SETTINGS)
    if NGINX is None and "nginx" in settings:
        sys.exit("nginx is not installed; use --behind direct.")
    report("The service under attack", measured_rows(names, settings, options.http, options.seconds), as_json=options.json)


if __name__ == "__main__":
    main()
