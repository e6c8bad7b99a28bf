"""Grids on digits: two methods without a network and one with, whole and interrupted."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from proxyhash.cutoff import DENOMINATORS
from proxyhash.experiments import Grid, Record, read_records, run_grid, runner
from proxyhash.experiments.records import RECORDS_FILE, RecordStore
from proxyhash.experiments.runner import TrialRunner
from proxyhash.experiments.trial import Trial
from proxyhash.models.backbones import create_backbone
from proxyhash.models.hasher import Hasher
from proxyhash.report import compare
from proxyhash.training.checkpoint import CHECKPOINT
from proxyhash.training.train import train_hashers
from proxyhash.utils.errors import InputError, ProxyhashWarning

GRID = Grid("digits", ("lsh", "itq", "shclm"), (8,), backbone="convnet", optim={"epochs": 2, "hidden_dim": 64})


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.set_num_threads(1)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("records")
    return folder, run_grid(GRID, folder)


def test_records_hold_settings_and_metrics(finished: tuple[Path, list[Record]]) -> None:
    folder, records = finished
    assert [record.trial["method"] for record in records] == ["lsh", "itq", "shclm"]
    lsh, itq, shclm = (record.metrics["map"] for record in records)
    assert 0.1 < lsh < itq < shclm
    ours = records[2]
    assert ours.trial["optim"]["epochs"] == 2
    assert ours.trial["settings"]["tau"] == 6.0
    assert 0.5 < ours.metrics["accuracy"] <= 1
    assert sum(ours.metrics["binarization_histogram"]) == ours.protocol["sizes"]["query"]
    assert sum(ours.metrics["proxy_histogram"]) == 10 * 8
    assert len([count for count in ours.metrics["proxy_histogram"] if count]) == 2, "signs are one of two weights"
    assert ours.metrics["proxies"]["min_distance"] >= 2
    assert {"python", "torch", "numpy"} <= ours.versions.keys()
    assert [path.name for path in folder.iterdir()] == [RECORDS_FILE], "nothing else is left"
    assert read_records(folder) == records


def test_recorded_trial_is_not_run_again(finished: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, records = finished
    ran: list[Trial] = []
    usual = TrialRunner.run

    def run(ours: TrialRunner, trial: Trial) -> Iterator[Record]:
        ran.append(trial)
        return usual(ours, trial)

    monkeypatch.setattr(TrialRunner, "run", run)
    assert run_grid(GRID, folder) == records
    assert ran == []
    wider = run_grid(replace(GRID, bits=(8, 12), methods=("itq",)), folder)
    assert [(trial.method, trial.code_lengths) for trial in ran] == [("itq", (12,))]
    assert wider[0] == records[1]
    lines = (folder / RECORDS_FILE).read_bytes().splitlines(keepends=True)
    (folder / RECORDS_FILE).write_bytes(b"".join(lines[:3]))


def test_incomplete_last_record_is_computed_again(finished: tuple[Path, list[Record]]) -> None:
    folder, records = finished
    path = folder / RECORDS_FILE
    path.write_bytes(path.read_bytes()[:-100])
    again = run_grid(GRID, folder)
    assert [record.metrics for record in again] == [record.metrics for record in records]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_records(folder) == again


def test_cutoff_and_denominator_of_a_grid_make_other_records(finished: tuple[Path, list[Record]], tmp_path: Path) -> None:
    plain = finished[1][0]
    found = {}
    for denominator in DENOMINATORS:
        (record,) = run_grid(replace(GRID, methods=("lsh",), top=5, denominator=denominator), tmp_path)
        assert (record.protocol["top"], record.protocol["denominator"]) == (5, denominator)
        assert record.map_name == f"mAP@5[{denominator}]"
        found[denominator] = record
    assert len({record.key for record in (plain, *found.values())}) == 4
    assert len({record.metrics["map"] for record in (plain, *found.values())}) == 4
    for record in found.values():  # each holds all three
        for denominator, other in found.items():
            assert record.metrics["all"][f"mAP@5[{denominator}] [ties expected]"] == other.metrics["map"]
    assert (plain.map_name, plain.metrics["all"]["mAP [ties expected]"]) == ("mAP", plain.metrics["map"])
    with pytest.raises(InputError, match="The denominator capped needs a cutoff"):
        run_grid(replace(GRID, denominator="capped"), tmp_path)


def test_denominator_without_a_cutoff_is_not_part_of_the_settings(finished: tuple[Path, list[Record]]) -> None:
    record = finished[1][0]
    before = {name: value for name, value in record.protocol.items() if name not in ("top", "denominator")}
    assert replace(record, protocol=before).key == record.key, "records of earlier grids are found"


def test_network_starts_from_random_weights_if_the_grid_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def create(name: str, *, pretrained: bool) -> Any:
        asked.append((name, pretrained))
        return create_backbone("convnet", pretrained=False)

    monkeypatch.setattr(runner, "create_backbone", create)
    small = replace(GRID, backbone="alexnet", methods=("lsh",))
    (pretrained,), (random,) = (run_grid(replace(small, pretrained=each), tmp_path) for each in (True, False))
    assert asked == [("alexnet", True), ("alexnet", False)]
    assert "pretrained" not in pretrained.data, "records of earlier grids are found"
    assert random.data["pretrained"] is False
    titles = [comparison.title for comparison in compare([pretrained, random])]
    assert titles == ["digits: holdout@1, alexnet frozen at random weights", "digits: holdout@1, frozen alexnet"]


def test_training_takes_pretrained_from_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SeenError(Exception):
        pass

    def train(_: Any, __: Any, config: Any, *___: Any, **____: Any) -> list[Hasher]:
        raise SeenError(config.pretrained)

    monkeypatch.setattr(runner, "train_hashers", train)
    for pretrained in (True, False):
        with pytest.raises(SeenError, match=str(pretrained)):
            run_grid(replace(GRID, methods=("shclm",), pretrained=pretrained, finetune=True, optim={}), tmp_path)


def test_stale_record_is_used_with_a_warning_and_computed_again_if_asked(tmp_path: Path) -> None:
    lsh = replace(GRID, methods=("lsh",))
    (record,) = run_grid(lsh, tmp_path)
    RecordStore(tmp_path).append(replace(record, metrics={"map": 0.0}, stale="another rounding"))
    with pytest.warns(ProxyhashWarning, match=r"1 of 1 records are stale \(another rounding\); --rerun-stale"):
        assert run_grid(lsh, tmp_path)[0].metrics == {"map": 0.0}
    (again,) = run_grid(lsh, tmp_path, rerun_stale=True)
    assert (again.metrics, again.stale) == (record.metrics, None)
    assert run_grid(lsh, tmp_path) == [again]


def test_stopped_grid_resumes_from_its_checkpoint(
    finished: tuple[Path, list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of the network's training: the others are kept, and the same network comes out."""

    class PulledPlugError(BaseException):
        pass

    def stop(work: str, fraction: float) -> None:
        if work.startswith("training") and fraction > 0.6:
            raise PulledPlugError

    with pytest.raises(PulledPlugError):
        run_grid(GRID, tmp_path, progress=stop)
    assert len(read_records(tmp_path)) == 2
    (checkpoint,) = tmp_path.glob(f"{runner.WORK_FOLDER}/*/{CHECKPOINT}")
    content = torch.load(checkpoint, weights_only=True)
    assert content["progress"]["seconds"] > 0
    content["progress"]["seconds"] += 1000
    torch.save(content, checkpoint)
    resumed: list[bool] = []
    usual = train_hashers

    def train(*given: Any, resume: bool, **named: Any) -> list[Hasher]:
        resumed.append(resume)
        return usual(*given, resume=resume, **named)

    monkeypatch.setattr(runner, "train_hashers", train)
    again = run_grid(GRID, tmp_path)
    assert resumed == [True]
    assert [record.metrics for record in again] == [record.metrics for record in finished[1]]
    assert [record.seconds["fit"] > 1000 for record in again] == [False, False, True], "what earlier processes spent counts"


def test_validation_uses_the_training_set_only(tmp_path: Path) -> None:
    (validation,) = run_grid(replace(GRID, methods=("itq",), eval_on="validation"), tmp_path)
    (test,) = run_grid(replace(GRID, methods=("itq",)), tmp_path)
    assert validation.protocol["eval_on"] == "validation"
    assert validation.key != test.key
    assert validation.protocol["sizes"]["train"] == validation.protocol["sizes"]["database"]
    assert validation.protocol["sizes"]["train"] + validation.protocol["sizes"]["query"] == test.protocol["sizes"]["train"]


def test_unseen_classes_are_also_classified(tmp_path: Path) -> None:
    records = run_grid(replace(GRID, methods=("itq",), protocol="transfer", folds=(0, 3)), tmp_path)
    assert [record.trial["fold"] for record in records] == [0, 3]
    records += run_grid(replace(GRID, methods=("hbmp-regress", "softmax-pq"), protocol="transfer"), tmp_path)
    assert all(0.3 < record.metrics["classification"] <= 1 for record in records)
    assert records[0].protocol["fingerprint"] != records[1].protocol["fingerprint"]


def test_models_are_saved(tmp_path: Path) -> None:
    grid = replace(GRID, methods=("shclm",), bits=(8, 12), finetune=True, optim={"epochs": 1})
    records = run_grid(grid, tmp_path / "records", models=tmp_path / "models")
    assert [record.bits for record in records] == [8, 12]
    assert len({record.key for record in records}) == 1
    for record in records:
        folder = tmp_path / "models" / record.name
        assert Hasher.load(folder).bits == record.bits


def test_method_for_classes_is_refused_on_tags(tmp_path: Path) -> None:
    rows = [f"{number}.png,{'sea' if number % 2 else 'sea sky'}" for number in range(8)]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,tags", *rows]))
    for number in range(8):
        Image.new("RGB", (8, 8), (30 * number, 0, 0)).save(tmp_path / f"{number}.png")
    with pytest.raises(InputError, match=r"KSH learns from classes, and .* has tags"):
        run_grid(Grid(str(tmp_path), ("itq", "ksh"), (4,), backbone="convnet"), tmp_path / "records")
    assert not (tmp_path / "records").exists()
