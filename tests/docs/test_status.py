"""The status page: it is what its command writes, and it tells what was never run."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.records import RECORDS
from proxyhash.cli.app import main
from proxyhash.experiments.records import RecordStore
from proxyhash.report.status import recipe_runs, status_page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["records", "status", str(ROOT / "results"), "-o", str(tmp_path / "status.md")])
    assert capsys.readouterr().out == f"The status is in {tmp_path}/status.md.\n"
    written = (tmp_path / "status.md").read_text(encoding="utf-8")
    committed = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
    assert committed == written, "run `proxyhash records status results -o docs/status.md`"


def test_recipes_without_records_were_never_run() -> None:
    runs = recipe_runs(ROOT / "results")
    assert {name for name, run in runs.items() if run is None} == {
        "cifar10",
        "ilsvrc2012",
        "nuswide",
        "partial-cifar100",
        "transfer-ilsvrc2012",
    }


def test_page_has_commit_date_and_seeds_of_a_recipe(tmp_path: Path) -> None:
    data = {**RECORDS[0].data, "backbone": "efficientnet_lite0"}
    for record in RECORDS[:4]:  # lsh with one seed, shclm with up to two
        RecordStore(tmp_path / "mine").append(replace(record, data=data, date="2026-02-03", commit="0123abc"))
    line = next(line for line in status_page(tmp_path).splitlines() if line.startswith("| `cifar100` |"))
    assert "| 2 of 47 | 16, 32 | 1 to 2 | 1 | 0123abc | 2026-02-03 | 0 |" in line
