import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxyhash.experiments.records import RECORDS_FILE, Record, RecordStore, read_records
from proxyhash.utils.errors import InputError, ProxyhashWarning

RECORD = Record(
    {"name": "digits"},
    {"protocol": "holdout"},
    {"label": "itq:iterations=9", "method": "itq", "seed": 1, "fold": 0, "settings": {"iterations": 9}},
    16,
    {"map": 0.5},
    {"fit": 1.0, "all": 2.0},
    {"python": "3.11"},
    {"cores": 2},
)
OTHER = replace(RECORD, bits=32, metrics={"map": 0.75})


def test_records_are_read_as_written(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    store = RecordStore(folder)
    store.append(RECORD)
    store.append(OTHER)
    assert [file.name for file in folder.iterdir()] == [RECORDS_FILE]
    assert len((folder / RECORDS_FILE).read_text().splitlines()) == 2
    assert read_records(tmp_path) == [RECORD, OTHER]


def test_record_is_found_by_its_settings(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.append(RECORD)
    assert store.find(RECORD.key, 16) == RECORD
    assert store.find(RECORD.key, 32) is None
    as_float = replace(RECORD, trial={**RECORD.trial, "settings": {"iterations": 9.0}})
    assert as_float.key == RECORD.key
    assert replace(RECORD, trial={**RECORD.trial, "seed": 2}).key != RECORD.key


def test_store_sees_records_of_other_processes(tmp_path: Path) -> None:
    ours, theirs = RecordStore(tmp_path), RecordStore(tmp_path)
    assert ours.find(RECORD.key, 16) is None
    theirs.append(RECORD)
    assert ours.find(RECORD.key, 16) == RECORD


def test_last_record_of_the_same_settings_counts(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for record in (replace(RECORD, stale="computed with a defect"), OTHER, RECORD):
        store.append(record)
    assert read_records(tmp_path) == [RECORD, OTHER]


def test_stale_mark_is_kept(tmp_path: Path) -> None:
    stale = replace(RECORD, stale="computed with a defect")
    RecordStore(tmp_path).append(stale)
    assert read_records(tmp_path) == [stale]


@pytest.mark.parametrize("length", [1, 100])
def test_incomplete_last_line_is_ignored_and_replaced(tmp_path: Path, length: int) -> None:
    store = RecordStore(tmp_path)
    store.append(RECORD)
    with store.path.open("ab") as handle:
        handle.write(json.dumps(OTHER.as_dict()).encode()[:length])
    assert read_records(tmp_path) == [RECORD]
    assert store.find(OTHER.key, 32) is None
    store.append(OTHER)
    assert read_records(tmp_path) == [RECORD, OTHER]
    assert store.find(OTHER.key, 32) == OTHER


def test_last_line_without_line_break_is_complete(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.append(RECORD)
    store.path.write_bytes(store.path.read_bytes().rstrip(b"\n"))
    assert read_records(tmp_path) == [RECORD]
    store.append(OTHER)
    assert read_records(tmp_path) == [RECORD, OTHER]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[1, 2]",
        lambda text: text.replace("record/2", "record/9"),
        lambda text: text.replace('"bits": 16', '"bits": "many"'),
        lambda text: json.dumps({**json.loads(text), "color": "red"}),
    ],
)
def test_damaged_line_is_reported_with_its_number(tmp_path: Path, damage: Callable[[str], str]) -> None:
    line = json.dumps(RECORD.as_dict())
    (tmp_path / RECORDS_FILE).write_text("\n".join([json.dumps(OTHER.as_dict()), damage(line), line, ""]))
    with pytest.warns(ProxyhashWarning, match=r"Left out: line 2 of .*records\.jsonl is not a record"):
        assert read_records(tmp_path) == [OTHER, RECORD]


def _append_many(folder: Path, seed: int) -> None:
    for bits in range(1, 41):
        RecordStore(folder).append(replace(RECORD, trial={**RECORD.trial, "seed": seed}, bits=bits))


def test_several_processes_append_to_one_file(tmp_path: Path) -> None:
    processes = [multiprocessing.Process(target=_append_many, args=(tmp_path, seed)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = {(record.trial["seed"], record.bits) for record in read_records(tmp_path)}
    assert found == {(seed, bits) for seed in range(4) for bits in range(1, 41)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_closed_folder_is_reported_in_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"Cannot write .*records\.jsonl: Permission denied\."):
        RecordStore(tmp_path).append(RECORD)


def test_changed_record_is_left_out_with_a_warning(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.append(RECORD)
    store.append(OTHER)
    path = tmp_path / RECORDS_FILE
    path.write_text(path.read_text().replace('"map": 0.5', '"map": 0.9'))
    with pytest.warns(ProxyhashWarning, match="line 1 of .* is not a record, or damaged: it does not match its checksum"):
        assert read_records(tmp_path) == [OTHER]


def test_last_record_with_a_damaged_line_break_is_kept(tmp_path: Path) -> None:
    RecordStore(tmp_path).append(RECORD)
    path = tmp_path / RECORDS_FILE
    path.write_bytes(path.read_bytes()[:-1] + b"\x0e")
    assert read_records(tmp_path) == [RECORD]
    RecordStore(tmp_path).append(OTHER)
    assert read_records(tmp_path) == [RECORD, OTHER]


def test_record_without_a_checksum_is_read(tmp_path: Path) -> None:
    (tmp_path / RECORDS_FILE).write_text(json.dumps(RECORD.as_dict()) + "\n")
    assert read_records(tmp_path) == [RECORD]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format": "proxyhash.record/3", "requires": "0.9"}, "needs proxyhash 0.9 or later"),
        ([1], "a record must be a table"),
        ({**RECORD.as_dict(), "trial": {}}, "it lacks 'method'"),
        ({**RECORD.as_dict(), "trial": {**RECORD.trial, "label": 3}}, "expected string"),
        ({**RECORD.as_dict(), "bits": "8"}, "Expected `int`, got `str`"),
    ],
)
def test_other_content_is_left_out_with_a_warning(tmp_path: Path, content: object, reason: str) -> None:
    (tmp_path / RECORDS_FILE).write_text(json.dumps(content) + "\n" + "[" * 50_000 + "\n")
    with pytest.warns(ProxyhashWarning) as caught:
        assert read_records(tmp_path) == []
    assert reason in str(caught[0].message)
    assert "nested too deeply" in str(caught[1].message)
