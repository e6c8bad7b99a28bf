"""Records, grids and tuned settings of release 0.1."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from helpers.release_0_1 import FILES, StepCounter, copy_of, read_json, run_command, same_processor
from proxyhash.methods.bhc import BhcSettings
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import upgrade_label, upgrade_map_name, upgrade_trial


def test_records_are_read(tmp_path: Path) -> None:
    from proxyhash.experiments import read_records

    records = read_records(copy_of("records", tmp_path))
    paths = sorted((FILES / "records").iterdir())
    assert len(records) == len(paths) == 13
    for record, path in zip(records, paths, strict=True):
        stored = json.loads(path.read_text())
        assert (record.bits, record.trial["label"]) == (stored["bits"], upgrade_label(stored["trial"]["label"]))
        assert record.metrics["map"] == stored["metrics"]["map"]
        assert list(record.metrics["all"].values()) == list(stored["metrics"]["all"].values())
        assert list(record.metrics["all"]) == list(map(upgrade_map_name, stored["metrics"]["all"]))
        first = next(iter(record.metrics["all"]))
        assert (record.map_name, first.replace("real distances, ", "")) == ("mAP", "mAP [ties expected]")


def test_records_are_reported(tmp_path: Path) -> None:
    from proxyhash.experiments import read_records
    from proxyhash.report import compare

    compared = repr(compare(read_records(copy_of("records", tmp_path))))
    for method in ("softmax-pq", "sdh", "learned"):
        assert method in compared


def _expected(name: str) -> list[tuple[str, int, float]]:
    return [(upgrade_label(each["label"]), each["bits"], each["map"]) for each in read_json(name)]


@pytest.mark.parametrize("name", ["frozen", "transfer", "finetuned"])
def test_complete_grid_is_not_run_again(name: str, tmp_path: Path) -> None:
    folder = copy_of(f"grids/{name}", tmp_path)
    before = {path.name: path.read_bytes() for path in (folder / "records").iterdir()}
    records = run_command("benchmark", "--recipe", folder / "recipe.toml", "-o", folder / "records")
    found = [(record["trial"]["label"], record["bits"], record["metrics"]["map"]) for record in records]
    assert found == _expected(f"grids/{name}/expected.json")
    assert {path.name: path.read_bytes() for path in (folder / "records").iterdir()} == before


def test_tuned_grid_is_not_run_again(tmp_path: Path) -> None:
    from proxyhash.experiments import Grid, run_grid
    from proxyhash.experiments.tuned import tuned_grids

    folder = copy_of("grids/tuned", tmp_path) / "records"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    optim = {"epochs": 1, "hidden_dim": 16}
    grid = Grid("digits", ("lsh", "itq-cca", "shclm:triplet=1"), (8,), backbone="convnet", optim=optim)
    (from_release,) = tuned_grids(grid, folder)
    assert from_release.tuned_for == {"dataset": "digits", "protocol": "holdout", "backbone": "convnet"}, "as its records"
    records = run_grid(from_release, folder)
    found = [(record.trial["label"], record.bits, record.metrics["map"]) for record in records]
    assert found == _expected("grids/tuned/expected.json")
    assert {path.name for path in folder.iterdir()} == before.keys(), "no record was added"


def with_tuned_for(folder: Path, protocol: str) -> Path:
    """Add to the files of a folder what a message asks for."""
    for path in folder.glob("*.toml"):
        path.write_text(path.read_text() + f'\n[tuned_for]\ndataset = "cifar100"\nprotocol = "{protocol}"\n')
    return folder


def test_choices_are_read(tmp_path: Path) -> None:
    from proxyhash.experiments import Grid
    from proxyhash.experiments.tuned import tuned_grids

    grid = Grid("cifar100", ("shclm:triplet=1", "shclm", "itq-cca", "bhc", "sdh"), (16,))
    with pytest.raises(InputError, match="does not say what its settings were tuned for, and no records beside it do"):
        tuned_grids(grid, copy_of("chosen", tmp_path / "alone"))
    (chosen,) = tuned_grids(grid, with_tuned_for(copy_of("chosen", tmp_path), "cifar100-paper"))
    assert chosen.edges("shclm:triplet=1") == {"margin": "lowest", "lr": "highest"}
    expected = list(map(upgrade_trial, read_json("chosen/expected.json")))
    # A file of choices asks for new runs, so what it leaves open has today's defaults.
    for trial in expected:
        trial["settings"] |= asdict(BhcSettings()) if trial["method"] == "bhc" else {}
    expected[-1]["settings"] |= {"kernel": "unit", "sigma": 0.4, "ridge": 0.01, "sweeps": 10}
    assert [trial.as_dict(tags=False) for trial in chosen.trials()] == expected
    folds = Grid("cifar100", ("itq-cca", "ksh"), (16,), protocol="transfer", folds=(0, 1))
    first, second = tuned_grids(folds, with_tuned_for(copy_of("chosen-rounds", tmp_path), "transfer"))
    assert (first.folds, second.folds) == ((0,), (1,))
    assert first.settings == {"itq-cca": {"ridge": 10.0}, "ksh": {"anchors": 1000}}


def test_grid_that_was_stopped_goes_on(tmp_path: Path, photos: Path) -> None:
    from dataclasses import replace

    from proxyhash.experiments import Grid, run_grid
    from proxyhash.experiments.records import RECORDS_FILE

    folder, steps = copy_of("grids/under-way", tmp_path), StepCounter()
    grid = replace(Grid.from_toml(folder / "recipe.toml"), dataset=str(photos))
    (record,) = run_grid(grid, folder / "records", progress=steps)
    assert steps.count == read_json("grids/under-way/expected.json")["steps_left"]
    (expected,) = read_json("grids/under-way/expected.json")["records"]
    assert record.trial["label"] == expected["label"]
    assert record.metrics["map"] == pytest.approx(expected["map"], abs=1e-12 if same_processor() else 0.05)
    assert [path.name for path in (folder / "records").iterdir()] == [RECORDS_FILE]
