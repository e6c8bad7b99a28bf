"""All simulated power cuts and I/O errors, as a record.

    PYTHONPATH=tests:benchmarks python -m helpers.power [OUTPUT] [--seeds 1 2] [--max-cuts 40]

A run that was stopped goes on where it was, if the commit is the same.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from helpers.partial_results import PartialResults
from helpers.power.cases import CASES, run_case, run_second_cut
from helpers.power.faults import FAULTS, SCENARIOS, inject
from helpers.power.recording import Counts, scratch_folder
from helpers.power.replay import SECTOR, VARIANTS
from reporting import provenance


def cut_power(seeds: list[int], max_cuts: int | None, parts: PartialResults) -> dict[str, Any]:
    """Return the counts of every workload and seed, and their sums."""
    counted: dict[str, dict[str, Any]] = {}
    for seed in seeds:
        works = {name: partial(run_case, name, seed=seed, max_cuts=max_cuts) for name in CASES}
        works["second cut"] = partial(run_second_cut, seed, max_cuts)
        for name, work in works.items():
            title = f"{name}, seed {seed}"
            counted[title] = parts.get(title, partial(_as_json, work))
            print(title, {key: value for key, value in counted[title].items() if value}, flush=True)
    totals = {name: sum(counts[name] for counts in counted.values()) for name in ("operations", "cuts", "states")}
    failures = sum(len(counts["failures"]) for counts in counted.values())
    return {
        "variants": [f"names {names}, data {data}" for names, data in VARIANTS],
        "disks": ["strict", "journaling"],
        "sector_bytes": SECTOR,
        "max_cuts": max_cuts,
        "total": totals | {"failures": failures},
        "workloads": counted,
    }


def _as_json(work: Callable[[], Counts]) -> dict[str, Any]:
    return asdict(work())


def fail_disks(limit: int, parts: PartialResults) -> dict[str, Any]:
    """Return the number of faults of every scenario."""
    found = {name: parts.get(name, partial(_inject, name, limit)) for name in SCENARIOS}
    total = {"faults": sum(each["faults"] for each in found.values())}
    total["failures"] = sum(len(each["failures"]) for each in found.values())
    return {"kinds": [str(fault) for fault in FAULTS], "limit": limit, "total": total, "scenarios": found}


def _inject(scenario: str, limit: int) -> dict[str, Any]:
    with scratch_folder() as folder:
        points, problems = inject(folder, [scenario], limit)
    return {"faults": points, "failures": problems}


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m helpers.power")
    parser.add_argument("output", nargs="?", type=Path, default=Path("results/power-loss.json"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--max-cuts", type=int, help="of each workload, chosen at random; all if left out")
    parser.add_argument("--max-faults", type=int, default=10_000, help="of each kind in each scenario, spread evenly")
    options = parser.parse_args()
    settings = f"{options.max_cuts}-{options.max_faults}"
    parts = PartialResults(options.output.with_suffix(f".{settings}.partial"), provenance())
    content: dict[str, Any] = {
        "power_cuts": cut_power(options.seeds, options.max_cuts, parts),
        "io_errors": fail_disks(options.max_faults, parts),
    }
    parts.finish(options.output, content)
    print(json.dumps({name: content[name]["total"] for name in ("power_cuts", "io_errors")}))


if __name__ == "__main__":
    main()
