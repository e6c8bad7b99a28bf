"""The recipes of data sets that are not at hand, on miniatures in their official layouts."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.datasets import write_cifar, write_ilsvrc, write_nuswide
from proxyhash.data import catalog
from proxyhash.experiments import Grid, read_records, run_grid
from proxyhash.experiments.recipes import list_recipes, read_recipe
from proxyhash.report import compare, write_page

SMALL = {"epochs": 1, "hidden_dim": 16, "batch_size": 32}  # of a network: what is tried here is the way, not the result


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


def reproduced(name: str, folder: Path) -> tuple[Grid, Path]:
    """Run a recipe with everything but its network and its code lengths as it is, and write its report."""
    recipe = read_recipe(name)
    optim = {**SMALL, "progressive_resize": 1.0} if recipe.finetune else SMALL
    grid = replace(recipe, backbone="convnet", image_size=16, bits=(16,), optim=optim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few images are not worth some words
        records = run_grid(grid, folder / "results", data_dir=folder)
    write_page(compare(records), folder / "report.html", title=name)
    return grid, folder / "results"


def check(grid: Grid, results: Path, *, rounds: int = 1) -> None:
    records = read_records(results)
    assert len(records) == rounds * len(grid.methods)
    assert {record.trial["label"] for record in records} == set(grid.methods)
    assert all(0 < record.metrics["map"] <= 1 for record in records)
    assert all(record.protocol["protocol"] == grid.protocol for record in records)
    assert "<table" in (results.parent / "report.html").read_text(encoding="utf-8")


# lambda compares weights of one method, and transfer-partial-cifar100 measures one configuration of ours.
COMPARISONS = [name for name in list_recipes() if name not in ("lambda", "transfer-partial-cifar100")]


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_have_the_papers_settings_beside_ours(name: str) -> None:
    grid = read_recipe(name)
    rows = {trial.label: trial.resolved_settings() for trial in grid.trials()}
    assert {"shclm", "shclm:paper"} <= rows.keys()
    paper, ours = rows["shclm:paper"], rows["shclm"]
    changed = {setting: value for setting, value in paper.items() if value != ours[setting]}
    assert changed == {"tau": "d", "bias": True, "assignment": "greedy"}


def test_ilsvrc(tmp_path: Path) -> None:
    write_ilsvrc(tmp_path / "ilsvrc2012")
    check(*reproduced("ilsvrc2012", tmp_path))


def test_ilsvrc_transfer(tmp_path: Path) -> None:
    write_ilsvrc(tmp_path / "ilsvrc2012", val=3)
    grid, results = reproduced("transfer-ilsvrc2012", tmp_path)
    check(grid, results, rounds=4)
    assert all("classification" in record.metrics for record in read_records(results) if record.trial["method"] == "shclm")


@pytest.mark.slow
def test_nuswide(tmp_path: Path) -> None:
    write_nuswide(tmp_path / "nus-wide", images=2600)
    check(*reproduced("nuswide", tmp_path))


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.DATASETS, "cifar10", write_cifar(tmp_path / catalog.CIFAR10.folder, catalog.CIFAR10))
    check(*reproduced("cifar10", tmp_path))
