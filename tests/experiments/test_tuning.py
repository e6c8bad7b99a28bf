import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from proxyhash.cli.app import main
from proxyhash.data import load_dataset, make_split
from proxyhash.experiments import Grid, read_records
from proxyhash.experiments.edges import Candidate, at_edge
from proxyhash.experiments.records import RecordStore
from proxyhash.experiments.run import run_grid, validation_split
from proxyhash.experiments.trial import Trial
from proxyhash.experiments.tuned import TUNED_FILE, tuned_grids
from proxyhash.experiments.tuning import BASE_LR, TRIALS, initial_candidates, next_candidate, next_lr, tune
from proxyhash.methods import get_method, list_methods, parse_method
from proxyhash.training.config import OptimConfig
from proxyhash.utils.errors import InputError

GRID = Grid("digits", ("lsh", "itq-cca", "shclm"), (8,), backbone="convnet", optim={"epochs": 1, "hidden_dim": 16}, seeds=3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("name", list_methods())
def test_candidates_of_every_method_are_valid_trials(name: str, tags: bool) -> None:
    proposed = initial_candidates(name, tags=tags)
    scores = dict.fromkeys(proposed, 0.5)
    while further := next_candidate(scores):
        assert further not in scores
        scores[further] = 0.4
    assert 1 <= len(proposed) <= len(scores) <= TRIALS
    assert len(set(proposed)) == len(proposed)
    if get_method(name).trains:
        assert len(scores) == TRIALS, "every network has the same number of trials"
    for each in scores:
        assert not tags or "samples_per_class" not in each.label, "it has no effect on tagged images"
        Trial(each.label, *parse_method(each.label), (8,), 0, 0, OptimConfig.frozen(**dict(each.optim)))


def test_best_candidate_on_validation_is_chosen(tmp_path: Path) -> None:
    best = tune(GRID, tmp_path)[tmp_path / TUNED_FILE]
    records = read_records(tmp_path)
    assert {record.protocol["eval_on"] for record in records} == {"validation"}
    scores = {
        (record.trial["label"], record.trial["optim"]["lr"]): record.metrics["map"]
        for record in records
        if record.trial["method"] == "shclm"
    }
    first = {(each.label, BASE_LR): scores[each.label, BASE_LR] for each in initial_candidates("shclm")}
    favorite = max(first, key=lambda each: first[each])
    assert len(scores) == TRIALS
    assert {label for label, _ in scores.keys() - first.keys()} == {favorite[0]}, "only it is tried at other rates"
    assert (best["shclm"].label, dict(best["shclm"].optim)["lr"]) == max(scores, key=lambda each: scores[each])
    text = (tmp_path / TUNED_FILE).read_text()
    assert all(f"{value:.4f}" in text for value in scores.values()), "every try is reported"
    assert best["itq-cca"].optim == ()


def test_settings_of_other_rows_stay(tmp_path: Path) -> None:
    tune(replace(GRID, methods=("lsh", "shclm")), tmp_path)
    before = (tmp_path / TUNED_FILE).read_text()
    tune(replace(GRID, methods=("itq-cca",)), tmp_path)
    after = tomllib.loads((tmp_path / TUNED_FILE).read_text())
    assert after["settings"].keys() == {"shclm", "itq-cca"}
    assert after["optim_by_method"] == tomllib.loads(before)["optim_by_method"]
    tune(replace(GRID, methods=("shclm",)), tmp_path)
    again = (tmp_path / TUNED_FILE).read_text()
    assert tomllib.loads(again) == after
    for name in ("# lsh", "# shclm"):
        assert again.count(name) == before.count(name) > 0, "its tries are listed once"


def test_each_fold_is_tuned_on_classes_that_its_test_does_not_search(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("lsh", "itq-cca"), protocol="transfer", folds=(1, 2))
    found = tune(grid, tmp_path)
    assert [path.name for path in found] == ["chosen-fold-1.toml", "chosen-fold-2.toml"]
    records = [record for record in read_records(tmp_path) if record.trial["method"] == "lsh"]
    assert sorted(record.trial["fold"] for record in records) == [1, 2]
    digits = load_dataset("digits")
    for record in records:
        number = record.trial["fold"]
        test = make_split(digits, "transfer", fold=number)
        tried = validation_split(test)
        assert (record.protocol["eval_on"], record.protocol["fingerprint"]) == ("validation", tried.fingerprint())
        classes = digits.require_classes().values
        searched, judged, trained = (set(classes[part]) for part in (test.database, tried.database, tried.train))
        assert judged, "some of the seen classes are kept from training"
        assert judged.isdisjoint(trained | searched)
        assert f"{record.metrics['map']:.4f}" in (tmp_path / f"chosen-fold-{number}.toml").read_text()


def test_each_fold_uses_its_own_tuned_settings(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("itq-cca",), protocol="transfer", folds=(1, 2), seeds=1)
    for number in grid.folds:
        text = f'[tuned_for]\nprotocol = "transfer"\n[settings.itq-cca]\nridge = {number}.5\n'
        (tmp_path / f"chosen-fold-{number}.toml").write_text(text)
    trials = [trial for each in tuned_grids(grid, tmp_path) for trial in each.trials()]
    assert [(trial.fold, trial.settings) for trial in trials] == [(1, {"ridge": 1.5}), (2, {"ridge": 2.5})]
    with pytest.raises(InputError, match=r"Cannot read .*chosen-fold-3\.toml: No such file or directory\."):
        tuned_grids(replace(grid, folds=(1, 3)), tmp_path)


def test_tuned_settings_are_read_from_a_folder_or_a_file(tmp_path: Path) -> None:
    (tmp_path / TUNED_FILE).write_text('[tuned_for]\ndataset = "digits"\n[settings.shclm]\ntau = 4.0\n')
    expected = [replace(GRID, settings={"shclm": {"tau": 4.0}}, tuned_for={"dataset": "digits"})]
    assert tuned_grids(GRID, tmp_path) == tuned_grids(GRID, tmp_path / TUNED_FILE) == expected
    assert tuned_grids(GRID, None) == [GRID]
    (tmp_path / "chosen-fold-0.toml").write_text("")
    with pytest.raises(InputError, match="has settings for each fold and for a protocol without folds; name the file"):
        tuned_grids(GRID, tmp_path)


def test_row_with_settings_is_tuned_by_itself(tmp_path: Path) -> None:
    joint = initial_candidates("shclm:triplet=1")
    assert [each.label.partition("triplet=1:")[2].split("=")[0] for each in joint] == ["margin"] * len(joint)
    assert initial_candidates("shclm", tags=True) != initial_candidates("shclm"), "tags want another tau"
    assert dict(initial_candidates("bhc", lr=0.001)[0].optim) == {"lr": 0.001}, "the rate of the grid"
    assert initial_candidates("shclm:triplet=1", tags=True) == initial_candidates("shclm:triplet=1"), (
        "a row's own tries come first"
    )
    assert [each.label for each in initial_candidates("shclm:loss=bits")] == ["shclm:loss=bits"], "it has no tau to try"
    assert [each.label for each in initial_candidates("shclm:tau=5")] == ["shclm:tau=5"], (
        "what a row says is not tried otherwise"
    )
    grid = replace(GRID, methods=("shclm", "shclm:loss=bits"))
    best = tune(grid, tmp_path)[tmp_path / TUNED_FILE]
    assert best.keys() == {"shclm", "shclm:loss=bits"}
    plain, bits = (
        next(trial for trial in tuned_grids(grid, tmp_path / TUNED_FILE)[0].trials() if trial.label == label)
        for label in grid.methods
    )
    assert plain.optim.lr == dict(best["shclm"].optim)["lr"]
    assert bits.optim.lr == dict(best["shclm:loss=bits"].optim)["lr"]
    assert plain.settings["tau"] > 0
    assert (bits.settings["loss"], bits.settings["tau"]) == ("bits", None), "what was tried, not what another row chose"


def test_grid_uses_tuned_settings(tmp_path: Path) -> None:
    chosen = tmp_path / TUNED_FILE
    chosen.write_text(
        '[tuned_for]\nprotocol = "holdout"\n[settings.shclm]\ntau = 4.0\nloss = "nca"\n[optim_by_method.shclm]\nlr = 0.001\n'
        '[settings.ksh]\nanchors = 9\n[at_edge.shclm]\ntau = "lowest"\nlr = "lowest"\n'
    )
    tuned = tuned_grids(GRID, chosen)[0]
    assert tuned.edges("shclm") == {"tau": "lowest", "lr": "lowest"}
    assert (tuned.edges("shclm:tau=9"), tuned.edges("lsh"), GRID.edges("shclm")) == ({"lr": "lowest"}, {}, None)
    trial = next(each for each in tuned_grids(GRID, chosen)[0].trials() if each.method == "shclm")
    assert trial.settings == {"tau": 4.0, "loss": "nca"}
    assert (trial.optim.lr, trial.optim.epochs) == (0.001, 1)
    own = tuned_grids(replace(GRID, settings={"shclm": {"tau": 9.0}}), chosen)[0]
    assert own.settings == {"shclm": {"tau": 9.0}}
    assert own.edges("shclm") == {"lr": "lowest"}, "what the grid gives was not tuned"
    chosen.write_text("bits = 3\n")
    with pytest.raises(InputError, match="has no setting 'bits'; choose from tuned_for, settings, optim_by_method, at_edge"):
        tuned_grids(GRID, chosen)


def test_setting_is_tuned_for_each_code_length(tmp_path: Path) -> None:
    row = "shclm:triplet=tuned"
    grid = replace(GRID, methods=(row,), bits=(8, 16), seeds=1)
    assert {trial.resolved_settings()["triplet"] for trial in grid.trials()} == {1.0}, "the paper's, until it is tuned"
    best = tune(grid, tmp_path)[tmp_path / TUNED_FILE][row]
    records = read_records(tmp_path)
    assert {record.protocol["eval_on"] for record in records} == {"validation"}
    lr = dict(best.optim)["lr"]
    scores: dict[int, dict[float, float]] = {}
    for record in records:
        settings, rate = record.trial["settings"], record.trial["optim"]["lr"]
        if (settings["margin"], rate) == (parse_method(best.label)[1]["margin"], lr):
            scores.setdefault(record.bits, {})[settings["triplet"]] = record.metrics["map"]
    assert {bits: set(found) for bits, found in scores.items()} == {8: {1.0, 10.0}, 16: {1.0, 10.0}}
    others = [record for record in records if record.trial["settings"]["triplet"] == 10.0]
    assert len(others) == 2, "the other weight is tried with the best margin and learning rate only"
    assert len({record.trial["label"] + str(record.trial["optim"]["lr"]) for record in records}) == TRIALS
    chosen = tomllib.loads((tmp_path / TUNED_FILE).read_text())["settings"][row]["triplet"]
    assert chosen == {str(bits): max(found, key=lambda weight: found[weight]) for bits, found in scores.items()}
    (tuned,) = tuned_grids(grid, tmp_path)
    assert {str(trial.code_lengths[0]): trial.settings["triplet"] for trial in tuned.trials()} == chosen
    with pytest.raises(InputError, match="triplet has values for 8, 16 bits, not for 32; tune it at that length too"):
        tuned_grids(replace(grid, bits=(8, 32)), tmp_path)


def test_values_of_code_lengths_are_checked() -> None:
    tables = {"shclm": {"triplet": {"8": 1.0, "16": 10.0}}}
    grid = replace(GRID, methods=("shclm", "shclm:triplet=3"), bits=(8, 16), seeds=1, settings=tables)
    weights = {(trial.label, trial.code_lengths): trial.settings["triplet"] for trial in grid.trials()}
    expected = {("shclm", (8,)): 1.0, ("shclm", (16,)): 10.0, ("shclm:triplet=3", (8,)): 3, ("shclm:triplet=3", (16,)): 3}
    assert weights == expected
    with pytest.raises(InputError, match="triplet has a value for each code length, and one network is trained for"):
        replace(grid, finetune=True)
    for row, sentence in (
        ("shclm:tau=tuned", "tau of shclm is no setting that is tuned for each code length; choose from triplet."),
        ("itq-cca:ridge=tuned", "ridge of itq-cca is no setting that is tuned for each code length; it has none."),
    ):
        with pytest.raises(InputError) as error:
            replace(GRID, methods=(row,))
        assert str(error.value) == sentence


@pytest.mark.parametrize("optimum", [1e-8, 0.0005, 0.005, 0.03, 0.4, 40.0])
def test_learning_rate_moves_until_the_best_is_inside(optimum: float) -> None:
    tried = {BASE_LR: -abs(math.log(BASE_LR / optimum))}
    while len(tried) < TRIALS and (lr := next_lr(tried)):
        tried[lr] = -abs(math.log(lr / optimum))
    best = max(tried, key=lambda each: tried[each])
    edges = at_edge({Candidate("shclm", (("lr", lr),)): score for lr, score in tried.items()})
    if 5e-4 <= optimum <= 0.4:
        assert edges == {}
        assert abs(math.log(best / optimum)) < math.log(2), "what is left of the trials goes near the best"
    else:
        assert edges == {"lr": "lowest" if optimum < BASE_LR else "highest"}, "the trials are spent"


def test_number_without_a_grid_is_at_no_edge() -> None:
    def edges(*labels: str) -> dict[str, str]:
        return at_edge({Candidate(label): score for label, score in zip(labels, (0.5, 0.2, 0.1), strict=False)})

    assert edges("itq-cca:ridge=0.1", "itq-cca:ridge=1", "itq-cca:ridge=10") == {"ridge": "lowest"}
    assert edges("itq-cca", "itq-cca:ridge=1", "itq-cca:ridge=10") == {"ridge": "lowest"}, "a default is tried too"
    assert edges("itq-cca:ridge=1", "itq-cca:ridge=10") == {}, "two have no inside"
    assert at_edge({Candidate(f"mihash:samples_per_class={number}"): 0.5 for number in (4, 8, 16)}) == {}, "no effect"
    assert edges("shclm:triplet=0", "shclm:triplet=1", "shclm:triplet=10") == {}, "nothing is below zero"
    assert edges("shclm:loss=bits", "shclm:loss=nca", "shclm:loss=cosine") == {}


def test_choice_at_an_edge_is_marked_in_the_file_and_in_records(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("itq-cca",), seeds=1)
    tune(grid, tmp_path / "tuning")
    content = tomllib.loads((tmp_path / "tuning" / TUNED_FILE).read_text())
    assert content["tuned_for"] == {"dataset": "digits", "protocol": "holdout", "backbone": "convnet"}
    ridge = content["settings"]["itq-cca"]["ridge"]
    expected = {1e-4: {"ridge": "lowest"}, 10.0: {"ridge": "highest"}}.get(ridge, {})
    assert content.get("at_edge", {}).get("itq-cca", {}) == expected
    text = (tmp_path / "tuning" / TUNED_FILE).read_text().partition("[at_edge")[0]
    marked = re.sub(r"ridge = \S+", "ridge = 10.0", text) + '[at_edge."itq-cca"]\nridge = "highest"\n'
    (tmp_path / "marked.toml").write_text(marked)
    (tuned,) = tuned_grids(grid, tmp_path / "marked.toml")
    (record,) = run_grid(tuned, tmp_path / "records")
    assert record.at_edge == {"ridge": "highest"}
    (plain,) = run_grid(grid, tmp_path / "records")
    assert plain.at_edge is None
    assert read_records(tmp_path / "records")[0].at_edge == {"ridge": "highest"}


def test_settings_tuned_for_another_comparison_are_refused(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("lsh",), seeds=1)
    tune(grid, tmp_path / "tuning")
    (other,) = tuned_grids(replace(grid, protocol="transfer"), tmp_path / "tuning" / TUNED_FILE)
    with pytest.raises(InputError, match=r"tuned for protocol holdout, not transfer; run proxyhash tune for it\.$"):
        run_grid(other, tmp_path / "records")
    with pytest.raises(InputError, match=r"tuned for image_size the default, not 16; run proxyhash tune for it\.$"):
        tune(replace(grid, image_size=16), tmp_path / "tuning")
    assert not (tmp_path / "records").exists()


def test_settings_tuned_by_another_map_are_refused(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("lsh",), seeds=1)
    capped = replace(grid, top=50, denominator="capped")
    tune(capped, tmp_path / "tuning")
    content = tomllib.loads((tmp_path / "tuning" / TUNED_FILE).read_text())
    assert content["tuned_for"]["metric"] == "mAP@50[capped]"
    (same,) = tuned_grids(capped, tmp_path / "tuning")
    (record,) = run_grid(same, tmp_path / "records")
    assert record.map_name == "mAP@50[capped]"
    (other,) = tuned_grids(grid, tmp_path / "tuning")
    with pytest.raises(InputError, match=r"tuned for metric mAP@50\[capped\], not the default; run"):
        run_grid(other, tmp_path / "records")
    text = (tmp_path / "tuning" / TUNED_FILE).read_text()
    (tmp_path / "tuning" / TUNED_FILE).write_text(re.sub(r"\[tuned_for\]\n(\w+ = .*\n)+", "", text))
    (found,) = tuned_grids(capped, tmp_path / "tuning")
    assert found.tuned_for == content["tuned_for"], "the records beside it say it"


def test_candidates_of_an_earlier_revision_are_computed_again(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("itq-cca",), seeds=1)
    ((_, first),) = tune(grid, tmp_path / "first").items()
    best = first["itq-cca"].label
    for record in read_records(tmp_path / "first"):
        wrong = 0.0 if record.trial["label"] == best else 0.999
        old = replace(record, revision=0, metrics={**record.metrics, "map": wrong})
        RecordStore(tmp_path / "second").append(old)
    ((_, second),) = tune(grid, tmp_path / "second").items()
    assert second["itq-cca"].label == best
    assert {record.revision for record in read_records(tmp_path / "second")} == {1}


def test_earlier_file_is_for_what_the_records_beside_it_are(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("itq-cca",), seeds=1)
    tune(grid, tmp_path)
    now = (tmp_path / TUNED_FILE).read_text()
    earlier = re.sub(r"\[(tuned_for|at_edge[^\]]*)\]\n(\w+ = .*\n)+", "", now).replace(
        "proxyhash.tuned/3", "proxyhash.tuned/2"
    )
    assert "tuned_for" not in earlier
    (tmp_path / TUNED_FILE).write_text(earlier)
    (found,) = tuned_grids(grid, tmp_path)
    assert found.tuned_for == {"dataset": "digits", "protocol": "holdout", "backbone": "convnet"}
    assert found.at_edge == tomllib.loads(now).get("at_edge", {})
    main(["records", "convert", str(tmp_path)])
    assert tomllib.loads((tmp_path / TUNED_FILE).read_text()) == tomllib.loads(now)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / TUNED_FILE).write_text(earlier)
    with pytest.raises(InputError, match=r"does not say what its settings were tuned for, and no records beside it do; run"):
        tuned_grids(grid, tmp_path / "alone")


def test_conversion_marks_records_that_have_the_tuned_settings(tmp_path: Path) -> None:
    chosen = tmp_path / TUNED_FILE
    chosen.write_text(
        '[tuned_for]\ndataset = "digits"\nprotocol = "holdout"\nbackbone = "convnet"\n'
        '[settings.itq-cca]\nridge = 10.0\n[at_edge.itq-cca]\nridge = "highest"\n'
    )
    grid = replace(GRID, methods=("itq-cca", "itq-cca:ridge=1"), seeds=1, settings={"itq-cca": {"ridge": 10.0}})
    run_grid(grid, tmp_path / "records")
    run_grid(replace(grid, settings={"itq-cca": {"ridge": 0.1}}), tmp_path / "records")
    main(["records", "convert", str(tmp_path / "records"), "--tuned", str(chosen)])
    found = [(r.trial["label"], r.trial["settings"]["ridge"], r.at_edge) for r in read_records(tmp_path / "records")]
    assert found == [("itq-cca", 10.0, {"ridge": "highest"}), ("itq-cca:ridge=1", 1, {}), ("itq-cca", 0.1, None)]
