"""All simulated power cuts and I/O errors, as a record.

    PYTHONPATH=tests:benchmarks python -m helpers.power [OUTPUT] [--seeds 1 2]

A run that was stopped goes on where it was, if the commit is the same.
"""

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from helpers.partial_results import PartialResults
from helpers.power.cases import CASES, run_case, run_second_cut
from helpers.power.faults import FAULTS, SCENARIOS, inject
from helpers.power.recording import scratch_folder
from helpers.power.replay import SECTOR, VARIANTS
from reporting import provenance


def cut_power(seeds: list[int], parts: PartialResults) -> dict[str, Any]:
    """Return the counts of every workload and seed, and their sums."""
    counted: dict[str, dict[str, Any]] = {}
    for seed in seeds:
        for name in CASES:
            work = partial(run_case, name, seed=seed)
            counted[f"{name}, seed {seed}"] = parts.get(f"{name}, seed {seed}", lambda work=work: asdict(work()))
        counted[f"second cut, seed {seed}"] = parts.get(
            f"second cut, seed {seed}", lambda seed=seed: asdict(run_second_cut(seed))
        )
        print(f"seed {seed} is done", flush=True)
    totals = {name: sum(counts[name] for counts in counted.values()) for name in ("operations", "cuts", "states")}
    failures = sum(len(counts["failures"]) for counts in counted.values())
    return {
        "variants": [f"names {names}, data {data}" for names, data in VARIANTS],
        "disks": ["strict", "journaling"],
        "sector_bytes": SECTOR,
        "total": totals | {"failures": failures},
        "workloads": counted,
    }


def fail_disks(parts: PartialResults) -> dict[str, Any]:
    """Return the number of faults of every scenario."""
    found = {name: parts.get(name, partial(_inject_all, name)) for name in SCENARIOS}
    total = {"faults": sum(each["faults"] for each in found.values())}
    total["failures"] = sum(len(each["failures"]) for each in found.values())
    return {"kinds": [str(fault) for fault in FAULTS], "total": total, "scenarios": found}


def _inject_all(scenario: str) -> dict[str, Any]:
    with scratch_folder() as folder:
        points, problems = inject(folder, [scenario], 10_000)
    return {"faults": points, "failures": problems}


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m helpers.power")
    parser.add_argument("output", nargs="?", type=Path, default=Path("results/power-loss.json"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    parts = PartialResults(options.output.with_suffix(".partial"), provenance())
    errors = fail_disks(parts)
    content: dict[str, Any] = {"power_cuts": cut_power(options.seeds, parts), "io_errors": errors}
    parts.finish(options.output, content)
    print(json.dumps({name: content[name]["total"] for name in ("power_cuts", "io_errors")}))


if __name__ == "__main__":
    main()
