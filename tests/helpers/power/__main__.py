"""All simulated power cuts and I/O errors, as a record: PYTHONPATH=tests python -m helpers.power [OUTPUT] [--seeds 1 2]."""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers.power.cases import CASES, run_case, run_second_cut
from helpers.power.faults import FAULTS, SCENARIOS, inject
from helpers.power.recording import Counts, scratch_folder
from helpers.power.replay import SECTOR, VARIANTS
from proxyhash.utils.environment import versions


def cut_power(seeds: list[int]) -> dict[str, Any]:
    """Return the counts of every workload and seed, and their sums."""
    counted: dict[str, Counts] = {}
    for seed in seeds:
        for name in CASES:
            counted[f"{name}, seed {seed}"] = run_case(name, seed=seed)
        counted[f"second cut, seed {seed}"] = run_second_cut(seed)
    totals = {name: sum(getattr(counts, name) for counts in counted.values()) for name in ("operations", "cuts", "states")}
    failures = sum(len(counts.failures) for counts in counted.values())
    return {
        "variants": [f"names {names}, data {data}" for names, data in VARIANTS],
        "disks": ["strict", "journaling"],
        "sector_bytes": SECTOR,
        "total": totals | {"failures": failures},
        "workloads": {name: asdict(counts) for name, counts in counted.items()},
    }


def fail_disks() -> dict[str, Any]:
    """Return the number of faults of every scenario."""
    found: dict[str, Any] = {}
    for name in SCENARIOS:
        with scratch_folder() as folder:
            points, problems = inject(folder, [name], 10_000)
        found[name] = {"faults": points, "failures": problems}
    total = {"faults": sum(each["faults"] for each in found.values())}
    total["failures"] = sum(len(each["failures"]) for each in found.values())
    return {"kinds": [str(fault) for fault in FAULTS], "total": total, "scenarios": found}


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m helpers.power")
    parser.add_argument("output", nargs="?", type=Path, default=Path("results/power-loss.json"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    start = time.monotonic()
    content: dict[str, Any] = {"power_cuts": cut_power(options.seeds), "io_errors": fail_disks(), "versions": versions()}
    content["seconds"] = round(time.monotonic() - start)
    options.output.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps({name: content[name]["total"] for name in ("power_cuts", "io_errors")}))


if __name__ == "__main__":
    main()
