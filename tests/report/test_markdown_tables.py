from pathlib import Path
from typing import Any

import pytest

from helpers.records import RECORDS, make_record
from proxyhash.experiments.records import Record, RecordStore
from proxyhash.methods import parse_method
from proxyhash.report.markdown_tables import fill_tables
from proxyhash.utils.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for record in RECORDS:
        RecordStore(tmp_path / "mine").append(record)
    return tmp_path


def asked(words: str, inside: str = "") -> str:
    return f"before\n<!-- records {words} -->\n{inside}<!-- end of records -->\nafter\n"


def test_table_is_filled_between_its_comments(folder: Path) -> None:
    text = fill_tables(asked("mine rows=lsh,shclm"), folder)
    table = """
| mAP, % | 16 bits | 32 bits |
|---|---:|---:|
| lsh | 3.0 (paper 3.4) | 5.0 (paper 4.7) |
| shclm | **71.0 ± 1.4** (paper 71.1) | **76.0** (paper 75.6) |

"""
    assert text == asked("mine rows=lsh,shclm", table)
    assert fill_tables(text, folder) == text
    assert fill_tables(asked("mine rows=lsh,shclm", "what was there\n"), folder) == text


def test_rows_name_their_metric_if_there_are_several(folder: Path) -> None:
    text = fill_tables(asked("mine metrics=map,binarization_error"), folder)
    assert "| shclm: binarization error | **0.050 ± 0.000** | **0.050** |" in text
    assert "| lsh: mAP, % | 3.0 (paper 3.4) |" in text
    assert "lsh: binarization error" not in text


def test_table_shows_the_denominator_that_is_asked_for(folder: Path) -> None:
    protocol = {"protocol": "holdout", "version": 1, "eval_on": "test", "top": 9, "denominator": "capped"}
    every = {f"mAP@9[{name}] [ties expected]": value for name, value in (("capped", 0.5), ("relevant", 0.25))}
    RecordStore(folder / "cut").append(make_record("itq", 16, 0.5, protocol=protocol, metrics={"all": every}))
    assert "| mAP@9\\[capped\\], % | 16 bits |" in fill_tables(asked("cut"), folder)
    assert "| itq | 25.0 |" in fill_tables(asked("cut metrics=map@9[relevant]"), folder)
    with pytest.raises(InputError, match=r"no metric 'map'; .*map@9\[capped\]"):
        fill_tables(asked("cut metrics=map"), folder)


def test_best_of_the_shown_rows_is_bold(folder: Path) -> None:
    RecordStore(folder / "mine").append(make_record("itq", 16, 0.9))
    assert "| shclm | **71.0" in fill_tables(asked("mine rows=lsh,shclm"), folder)
    assert "| shclm | 71.0" in fill_tables(asked("mine rows=itq,shclm"), folder)


def test_every_table_of_a_file_is_filled(folder: Path) -> None:
    text = fill_tables(asked("mine rows=lsh") + asked("mine rows=shclm"), folder)
    assert text.count("| lsh |") == text.count("| shclm |") == 1


def test_file_without_tables_is_unchanged(folder: Path) -> None:
    assert fill_tables("# Title\n\n<!-- records -->\n", folder) == "# Title\n\n<!-- records -->\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("mine rows=itq", "has no row itq; choose from lsh, shclm"),
        ("mine metric=map", "no setting 'metric'; did you mean metrics"),
        ("mine metrics=speed", "no metric 'speed'"),
        ("yours", "has 0 with that title"),
        ("mine title=ilsvrc", "has 0 with that title: none"),
    ],
)
def test_invalid_table_is_refused(folder: Path, words: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        fill_tables(asked(words), folder)


def test_table_of_two_comparisons_is_refused(folder: Path) -> None:
    RecordStore(folder / "mine").append(make_record("itq", 16, 0.1, data={**RECORDS[0].data, "finetune": True}))
    with pytest.raises(InputError, match=r"has 2 with that title: .*fine-tuned.*frozen"):
        fill_tables(asked("mine"), folder)
    assert "| itq | 10.0 (paper" in fill_tables(asked("mine title=fine-tuned"), folder)


@pytest.mark.parametrize("file", ["README.md", *(path.name for path in sorted((ROOT / "docs").glob("*.md")))])
def test_tables_of_the_docs_match_the_records(file: str) -> None:
    path = ROOT / file if file == "README.md" else ROOT / "docs" / file
    text = path.read_text(encoding="utf-8")
    assert fill_tables(text, path.parent) == text, f"proxyhash report --fill {file} makes its tables anew"


def candidate(label: str, value: float, revision: int, lr: float = 0.005, **changes: Any) -> Record:
    trial = {**make_record(label, 32, value).trial, "settings": parse_method(label)[1], "optim": {"lr": lr}}
    protocol = {"protocol": "cifar100-paper", "version": 1, "eval_on": "validation"}
    return make_record(label, 32, value, **{"trial": trial, "protocol": protocol, "revision": revision, **changes})


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    for record in (
        candidate("csq:quantization=0.1", 0.61, 1),
        candidate("csq:quantization=0.0001", 0.65, 1),
        candidate("csq:pairs=0.2", 0.66, 2),
        candidate("csq:pairs=0.2", 0.70, 2, lr=0.03),
        candidate("csq:pairs=0", 0.69, 2),
        candidate("shclm", 0.8, 1),
    ):
        RecordStore(tmp_path / "tuning").append(record)
    return tmp_path


def test_table_of_revisions_has_the_best_candidate_before_and_after(candidates: Path) -> None:
    text = fill_tables("<!-- revisions tuning rows=csq -->\n<!-- end of records -->", candidates)
    assert "| csq | 65.0 | 2 | 70.0 | 3 | pairs=0.2, lr 0.03 |" in text
    assert fill_tables(text, candidates) == text


def test_table_of_revisions_marks_the_best_candidate_at_an_edge(candidates: Path) -> None:
    before, after = "csq:quantization=0.0001", "csq:pairs=0.2"
    for label, value, revision, lr in ((before, 0.62, 1, 0.0015), (before, 0.66, 1, 0.03), (after, 0.72, 2, 0.09)):
        RecordStore(candidates / "tuning").append(candidate(label, value, revision, lr=lr))
    text = fill_tables("<!-- revisions tuning rows=csq -->\n<!-- end of records -->", candidates)
    assert "| csq | 66.0 † | 4 | 72.0 † | 4 | pairs=0.2, lr 0.09 |" in text
    assert "value that was tried \\(csq before: lr highest; csq after: lr highest\\)." in text
    RecordStore(candidates / "tuning").append(candidate(after, 0.71, 2, lr=0.27))
    text = fill_tables("<!-- revisions tuning rows=csq -->\n<!-- end of records -->", candidates)
    assert "| 72.0 | 5 |" in text
    assert "\\(csq before: lr highest\\)." in text


def test_table_of_revisions_refuses_a_method_that_did_not_change(candidates: Path) -> None:
    with pytest.raises(InputError, match="no candidates of shclm from before its change"):
        fill_tables("<!-- revisions tuning rows=shclm -->\n<!-- end of records -->", candidates)


def test_table_of_revisions_refuses_candidates_of_several_splits(candidates: Path) -> None:
    RecordStore(candidates / "tuning").append(make_record("csq", 32, 0.9, revision=2))  # evaluated on the test split
    with pytest.raises(InputError, match="on one split"):
        fill_tables("<!-- revisions tuning rows=csq -->\n<!-- end of records -->", candidates)
