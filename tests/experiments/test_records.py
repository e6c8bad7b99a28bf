import json
from pathlib import Path

import pytest

from proxyhash.experiments.records import Record, read_record, read_records
from proxyhash.utils.errors import InputError, ProxyhashWarning

RECORD = Record(
    "0123456789ab",
    {"name": "digits"},
    {"protocol": "holdout"},
    {"label": "itq:iterations=9", "method": "itq", "seed": 1, "round": 0},
    16,
    {"map": 0.5},
    {"fit": 1.0, "all": 2.0},
    {"python": "3.11"},
    {"cores": 2},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["itq-iterations-9-16-seed1-0123456789ab.json"]
    assert read_records(tmp_path) == [RECORD]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[1, 2]",
        lambda text: text.replace("record/1", "record/9"),
        lambda text: text.replace('"bits": 16', '"bits": "many"'),
        lambda text: json.dumps({**json.loads(text), "color": "red"}),
    ],
)
def test_a_damaged_record_is_named_and_left_out(tmp_path: Path, damage: object) -> None:
    RECORD.write(tmp_path)
    bad = tmp_path / "bad.json"
    bad.write_text(damage((tmp_path / RECORD.file_name).read_text()))  # type: ignore[operator]
    with pytest.raises(InputError, match=r"bad\.json is not a record"):
        read_record(bad)
    with pytest.warns(ProxyhashWarning, match=r"Left out: .*bad\.json"):
        assert read_records(tmp_path) == [RECORD]
