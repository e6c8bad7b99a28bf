"""Conversion of records that release 0.1 wrote as one JSON file each."""

import json
from pathlib import Path

import pytest

from proxyhash.cli.app import main
from proxyhash.experiments import read_records
from proxyhash.experiments.conversion import convert_folder
from proxyhash.experiments.records import RECORDS_FILE
from proxyhash.utils.errors import InputError

OLD = json.loads((Path(__file__).parents[1] / "fixtures" / "record-0.1.json").read_text(encoding="utf-8"))
TUNED = """# Chosen on what is held out of the training set, out of at most 6 tries of each method.

# lsh: mAP 0.0376

# shclm:tau=4.0, rate 0.005: mAP 0.6163
# shclm:tau=4.0, rate 0.015: mAP 0.6510
[settings."shclm"]
tau = 4.0
[plans."shclm"]
rate = 0.015
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seed in (("shclm-16-seed0-round1-45e20f38acec.json", 0), ("shclm-16-seed1-round1-55e20f38acec.json", 1)):
        content = {**OLD, "trial": {**OLD["trial"], "seed": seed}}
        (tmp_path / "old" / "inside").mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / "inside" / name).write_text(json.dumps(content))
    (tmp_path / "old" / "inside" / "chosen-round-1.toml").write_text(TUNED)
    return tmp_path


def test_records_of_release_0_1_are_read_in_current_names(folder: Path) -> None:
    first, second = read_records(folder)
    assert (first.trial["fold"], first.protocol["eval_on"], first.trial["code_lengths"]) == (1, "test", [16])
    assert first.metrics["binarization_error"] == 0.05
    assert first.trial["optim"] == {"epochs": 12, "batch_size": 256, "lr": 0.005, "backbone_lr": 0.0, "hidden_dim": 1024}
    assert (first.trial["seed"], second.trial["seed"]) == (0, 1)


def test_converted_records_are_equal(folder: Path) -> None:
    before = read_records(folder / "old")
    done = convert_folder(folder / "old", folder / "new")
    assert (done.records, done.values, len(done.old_files)) == (2, 2 * 7, 3)
    assert read_records(folder / "new") == before == read_records(folder / "old")
    assert [path.name for path in sorted((folder / "new" / "inside").iterdir())] == ["chosen-fold-1.toml", RECORDS_FILE]


def test_command_converts_in_place_and_prints_the_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_records(folder / "old")
    main(["records", "convert", str(folder / "old"), "--delete-old"])
    assert "2 records with 14 values are converted; all values are equal." in capsys.readouterr().out
    assert [path.name for path in sorted((folder / "old" / "inside").iterdir())] == ["chosen-fold-1.toml", RECORDS_FILE]
    assert read_records(folder / "old") == before
    main(["records", "convert", str(folder / "old"), "--json"])
    assert json.loads(capsys.readouterr().out)["records"] == 2
    assert read_records(folder / "old") == before


def test_damaged_record_stops_the_conversion(folder: Path) -> None:
    bad = folder / "old" / "inside" / "lsh-16-seed0-0123456789ab.json"
    bad.write_text('{"format": ')
    with pytest.raises(InputError, match=r"lsh-16-seed0-0123456789ab\.json is not a record, or damaged"):
        convert_folder(folder / "old", folder / "new")


def test_tuned_settings_get_current_names(folder: Path) -> None:
    convert_folder(folder / "old", folder / "new")
    text = (folder / "new" / "inside" / "chosen-fold-1.toml").read_text()
    assert '[optim_by_method."shclm"]' in text
    assert "# lsh: mAP 0.0376" in text
    assert "# shclm:tau=4.0, lr 0.015: mAP 0.6510" in text
    assert "\nlr = 0.015" in text
    assert "plans" not in text
