"""Conversion of records that release 0.1 wrote as one JSON file each."""

import json
from pathlib import Path

import pytest

from helpers.release_0_1 import copy_of
from proxyhash.cli.app import main
from proxyhash.experiments import read_records
from proxyhash.experiments.conversion import convert_folder
from proxyhash.experiments.records import RECORDS_FILE
from proxyhash.utils.errors import InputError


@pytest.fixture
def old(tmp_path: Path) -> Path:
    copy_of("records", tmp_path / "old")
    copy_of("chosen-rounds", tmp_path / "old")
    return tmp_path / "old"


def test_records_of_release_0_1_are_read_in_current_names(old: Path) -> None:
    records = {record.trial["label"]: record for record in read_records(old)}
    joint = records["joint:distance_share=0.5"]
    assert (joint.trial["fold"], joint.protocol["eval_on"], joint.trial["code_lengths"]) == (1, "test", [16])
    assert joint.trial["settings"]["distance_share"] == 0.5
    assert joint.metrics["binarization_error"] > 0
    assert {"lr", "batch_size", "hidden_dim"} <= joint.trial["optim"].keys()
    assert "mihash:samples_per_class=16" in records


def test_converted_records_are_equal(old: Path, tmp_path: Path) -> None:
    before = read_records(old)
    done = convert_folder(old, tmp_path / "new")
    assert (done.records, len(done.old_files)) == (13, 13 + 2)
    assert done.values > 1000
    assert read_records(tmp_path / "new") == before == read_records(old)
    assert [path.name for path in (tmp_path / "new" / "records").iterdir()] == [RECORDS_FILE]


def test_command_converts_in_place_and_prints_the_counts(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_records(old)
    main(["records", "convert", str(old), "--delete-old"])
    assert capsys.readouterr().out.startswith("13 records with ")
    assert sorted(path.name for path in old.rglob("*.*")) == ["chosen-fold-0.toml", "chosen-fold-1.toml", RECORDS_FILE]
    assert read_records(old) == before
    main(["records", "convert", str(old), "--json"])
    assert json.loads(capsys.readouterr().out)["records"] == 13
    assert read_records(old) == before


def test_damaged_record_stops_the_conversion(old: Path, tmp_path: Path) -> None:
    (old / "records" / "lsh-16-seed0-0123456789ab.json").write_text('{"format": ')
    with pytest.raises(InputError, match=r"lsh-16-seed0-0123456789ab\.json is not a record, or damaged"):
        convert_folder(old, tmp_path / "new")


def test_tuned_settings_get_current_names(old: Path, tmp_path: Path) -> None:
    convert_folder(old, tmp_path / "new")
    before = (old / "chosen-rounds" / "chosen-round-1.toml").read_text()
    after = (tmp_path / "new" / "chosen-rounds" / "chosen-fold-1.toml").read_text()
    assert before.count("[plans.") == after.count("[optim_by_method.") > 0
    assert before.count("\nrate = ") == after.count("\nlr = 0.") > 0
    assert before.count(": mAP ") == after.count(": mAP ")
