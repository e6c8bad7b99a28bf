import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from proxyhash.experiments import Grid, read_records
from proxyhash.experiments.trial import Trial, parse_method
from proxyhash.experiments.tuning import BUDGET, CHOSEN, tries, tune
from proxyhash.methods import list_methods
from proxyhash.support.errors import InputError
from proxyhash.training.plan import Plan

GRID = Grid("digits", ("lsh", "itq-cca", "shclm"), (8,), backbone="convnet", plan={"epochs": 1, "hidden": 16}, seeds=3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", list_methods())
def test_every_method_has_a_few_tries_that_it_can_make(name: str) -> None:
    proposed = tries(name)
    assert 1 <= len(proposed) <= BUDGET
    assert len(set(proposed)) == len(proposed)
    for each in proposed:
        Trial(each.label, *parse_method(each.label), (8,), 0, 0, Plan.frozen(**dict(each.plan)))


def test_the_best_on_held_out_images_is_chosen(tmp_path: Path) -> None:
    best = tune(GRID, tmp_path)
    records = read_records(tmp_path)
    assert len(records) == sum(len(tries(name)) for name in GRID.methods)
    assert {record.protocol["judged_on"] for record in records} == {"validation"}
    ours = {
        (record.trial["label"], record.trial["plan"]["rate"]): record.metrics["map"]
        for record in records
        if record.trial["method"] == "shclm"
    }
    assert (best["shclm"].label, dict(best["shclm"].plan)["rate"]) == max(ours, key=lambda each: ours[each])
    text = (tmp_path / CHOSEN).read_text()
    assert all(f"{value:.4f}" in text for value in ours.values()), "every try is reported"


def test_what_was_chosen_for_others_stays(tmp_path: Path) -> None:
    tune(replace(GRID, methods=("shclm",)), tmp_path)
    before = (tmp_path / CHOSEN).read_text()
    tune(replace(GRID, methods=("itq-cca",)), tmp_path)
    after = tomllib.loads((tmp_path / CHOSEN).read_text())
    assert after["settings"].keys() == {"shclm", "itq-cca"}
    assert after["plans"] == tomllib.loads(before)["plans"]
    tune(replace(GRID, methods=("shclm",)), tmp_path)
    again = (tmp_path / CHOSEN).read_text()
    assert tomllib.loads(again) == after
    assert again.count("# shclm") == before.count("# shclm"), "its tries are listed once"


def test_a_grid_starts_from_what_was_chosen(tmp_path: Path) -> None:
    chosen = tmp_path / CHOSEN
    chosen.write_text(
        '[settings.shclm]\ntau = 4.0\nloss = "nca"\n[plans.shclm]\nrate = 0.001\n[settings.ksh]\nanchors = 9\n'
    )
    trial = next(each for each in GRID.with_choices(chosen).trials() if each.method == "shclm")
    assert trial.settings == {"tau": 4.0, "loss": "nca"}
    assert (trial.plan.rate, trial.plan.epochs) == (0.001, 1)
    own = replace(GRID, settings={"shclm": {"tau": 9.0}}).with_choices(chosen)
    assert own.settings == {"shclm": {"tau": 9.0}}
    chosen.write_text("bits = 3\n")
    with pytest.raises(InputError, match="has an unknown key bits; choices are settings and plans"):
        GRID.with_choices(chosen)
