import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from proxyhash.experiments import Grid, read_records
from proxyhash.experiments.trial import Trial, parse_method
from proxyhash.experiments.tuning import BUDGET, CHOSEN, OTHER_RATES, RATE, first_tries, further_tries, tune
from proxyhash.methods import list_methods
from proxyhash.support.errors import InputError
from proxyhash.training.plan import Plan

GRID = Grid("digits", ("lsh", "itq-cca", "shclm"), (8,), backbone="convnet", plan={"epochs": 1, "hidden": 16}, seeds=3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("name", list_methods())
def test_every_method_has_a_few_tries_that_it_can_make(name: str, tags: bool) -> None:
    proposed = first_tries(name, tags=tags)
    proposed += further_tries(proposed[-1])
    assert 1 <= len(proposed) <= BUDGET
    assert len(set(proposed)) == len(proposed)
    for each in proposed:
        Trial(each.label, *parse_method(each.label), (8,), 0, 0, Plan.frozen(**dict(each.plan)))


def test_the_best_on_held_out_images_is_chosen(tmp_path: Path) -> None:
    best = tune(GRID, tmp_path)
    records = read_records(tmp_path)
    assert {record.protocol["judged_on"] for record in records} == {"validation"}
    scores = {
        (record.trial["label"], record.trial["plan"]["rate"]): record.metrics["map"]
        for record in records
        if record.trial["method"] == "shclm"
    }
    first = {(each.label, RATE): scores[each.label, RATE] for each in first_tries("shclm")}
    favourite = max(first, key=lambda each: first[each])
    others = {(favourite[0], round(times * RATE, 6)) for times in OTHER_RATES}
    assert scores.keys() - first.keys() == others, "only it is tried at other rates"
    assert (best["shclm"].label, dict(best["shclm"].plan)["rate"]) == max(scores, key=lambda each: scores[each])
    text = (tmp_path / CHOSEN).read_text()
    assert all(f"{value:.4f}" in text for value in scores.values()), "every try is reported"
    assert best["itq-cca"].plan == ()


def test_what_was_chosen_for_others_stays(tmp_path: Path) -> None:
    tune(replace(GRID, methods=("lsh", "shclm")), tmp_path)
    before = (tmp_path / CHOSEN).read_text()
    tune(replace(GRID, methods=("itq-cca",)), tmp_path)
    after = tomllib.loads((tmp_path / CHOSEN).read_text())
    assert after["settings"].keys() == {"shclm", "itq-cca"}
    assert after["plans"] == tomllib.loads(before)["plans"]
    tune(replace(GRID, methods=("shclm",)), tmp_path)
    again = (tmp_path / CHOSEN).read_text()
    assert tomllib.loads(again) == after
    for name in ("# lsh", "# shclm"):
        assert again.count(name) == before.count(name) > 0, "its tries are listed once"


def test_unseen_classes_are_rehearsed_on_classes_held_out_in_one_round(tmp_path: Path) -> None:
    tune(replace(GRID, methods=("lsh",), protocol="transfer", rounds=(1, 2)), tmp_path)
    (record,) = read_records(tmp_path)
    assert record.trial["round"] == 1
    assert record.protocol["judged_on"] == "validation"
    sizes = record.protocol["sizes"]
    assert record.protocol["classes"] < 8, "some of the seen classes are kept from training too"
    assert sizes["query"] < sizes["database"]


def test_a_row_with_settings_of_its_own_is_tuned_by_itself(tmp_path: Path) -> None:
    joint = first_tries("shclm:triplet=1")
    assert [each.label.partition("triplet=1:")[2].split("=")[0] for each in joint] == ["margin"] * len(joint)
    assert first_tries("shclm", tags=True) != first_tries("shclm"), "tags want another tau"
    slow = further_tries(first_tries("bhc", rate=0.001)[0])
    assert [dict(each.plan)["rate"] for each in slow] == [0.0003, 0.003, 0.006], "around the rate of the grid's plan"
    assert first_tries("shclm:triplet=1", tags=True) == first_tries("shclm:triplet=1"), "a row's own tries come first"
    assert [each.label for each in first_tries("shclm:loss=bits")] == ["shclm:loss=bits"], "it has no tau to try"
    assert [each.label for each in first_tries("shclm:tau=5")] == ["shclm:tau=5"], "what a row says is not tried otherwise"
    grid = replace(GRID, methods=("shclm", "shclm:loss=bits"))
    best = tune(grid, tmp_path)
    assert best.keys() == {"shclm", "shclm:loss=bits"}
    plain, bits = (
        next(trial for trial in grid.with_choices(tmp_path / CHOSEN).trials() if trial.label == label)
        for label in grid.methods
    )
    assert plain.plan.rate == dict(best["shclm"].plan)["rate"]
    assert bits.plan.rate == dict(best["shclm:loss=bits"].plan)["rate"]
    assert plain.settings["tau"] > 0
    assert (bits.settings["loss"], bits.settings["tau"]) == ("bits", 0.0), "what was tried, not what another row chose"


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
