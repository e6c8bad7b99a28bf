import json
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from proxyhash import codes
from proxyhash.cli.app import main
from proxyhash.evaluation import mean_average_precision


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    q, db = (np.where(random.random((count, 20)) < 0.5, -1, 1) for count in (15, 200))
    return q, random.integers(0, 5, 15), db, random.integers(0, 4, 200)


def test_every_format_of_codes_gives_the_same_metrics(
    search: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    q, q_labels, db, db_labels = search
    np.savez("q.npz", codes=q, labels=q_labels)
    np.savez("q_packed.npz", codes=codes.pack(q), labels=q_labels)
    np.savez("q_bits.npz", codes=(q > 0).astype(np.uint8), labels=q_labels)
    savemat("q.mat", {"codes": q.astype(float), "labels": q_labels})
    np.savez("db.npz", codes=db, labels=db_labels)
    answers = []
    for name in ("q.npz", "q_packed.npz", "q_bits.npz", "q.mat"):
        main(f"evaluate codes --query {name} --database db.npz --top 50 --json".split())
        answers.append(json.loads(capsys.readouterr().out))
    assert answers.count(answers[0]) == 4
    expected = mean_average_precision(codes.pack(q), q_labels, codes.pack(db), db_labels, 50)
    assert answers[0][0]["name"] == expected.name
    assert answers[0][0]["value"] == pytest.approx(expected.value)
    low, high = answers[0][0]["interval_95"]
    assert low <= expected.value <= high


def test_the_table_names_the_protocol_and_queries_without_relevant_items(
    search: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    q, q_labels, db, db_labels = search
    assert (q_labels == 4).any()
    np.savez("q.npz", codes=q, labels=q_labels)
    np.savez("db.npz", codes=db, labels=db_labels)
    main("evaluate codes --query q.npz --database db.npz --legacy talr".split())
    out = capsys.readouterr().out
    for text in ("15 queries, 200 items", "mAP [ties expected]", "mAP [legacy talr]", "95 % interval"):
        assert text in out
    assert f"{(q_labels == 4).sum()} queries have no relevant item and count 0." in out


def test_denominator_is_chosen_and_the_others_are_shown_too(
    search: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    q, q_labels, db, db_labels = search
    np.savez("q.npz", codes=q, labels=q_labels)
    np.savez("db.npz", codes=db, labels=db_labels)
    main("evaluate codes --query q.npz --database db.npz --top 20 --denominator retrieved --json".split())
    found = {metric["name"]: metric["value"] for metric in json.loads(capsys.readouterr().out)}
    assert next(iter(found)) == "mAP@20[retrieved] [ties expected]"
    for denominator in ("relevant", "capped", "retrieved"):
        expected = mean_average_precision(codes.pack(q), q_labels, codes.pack(db), db_labels, 20, denominator=denominator)
        assert found[expected.name] == pytest.approx(expected.value)
    for options, sentence in (
        ("--denominator capped", "The denominator capped needs a cutoff: give top too, such as 5000."),
        ("--top 20 --denominator hits", "There is no denominator 'hits'; choose from relevant, capped, retrieved."),
    ):
        with pytest.raises(SystemExit):
            main(f"evaluate codes --query q.npz --database db.npz {options}".split())
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("absent.npz", "There is no file absent.npz."),
        ("text.npz", "text.npz cannot be read as .npz"),
        ("text.mat", "text.mat cannot be read as .mat"),
        ("lacking.npz", "lacking.npz has no array 'labels'; it holds codes, other."),
        ("pickled.npz", "which are refused because they can run code."),
        ("single.npy", "one array without a name"),
        ("narrow.npz", "cannot be compared with a database of 3 bytes a code."),
        ("short.npz", "short.npz: labels must have one row for each of the 15 codes, not (2,)."),
        ("nan.npz", "not finite"),
        ("empty.npz", "Queries must hold at least one code."),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    file: str, sentence: str, search: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    q, q_labels, db, db_labels = search
    np.savez("db.npz", codes=db, labels=db_labels)
    Path("text.npz").write_text("hello")
    Path("text.mat").write_text("hello")
    np.savez("lacking.npz", codes=q, other=q)
    np.savez("pickled.npz", codes=q, labels=np.array([{}] * 15, dtype=object), allow_pickle=True)
    np.save("single.npy", q)
    np.savez("narrow.npz", codes=q[:, :8], labels=q_labels)
    np.savez("short.npz", codes=q, labels=q_labels[:2])
    np.savez("nan.npz", codes=np.where(q > 0, np.nan, q), labels=q_labels)
    np.savez("empty.npz", codes=q[:0], labels=q_labels[:0])
    with pytest.raises(SystemExit) as stop:
        main(f"evaluate codes --query {file} --database db.npz".split())
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.out == ""
    assert output.err.startswith("proxyhash: error: ")
    assert output.err.count("\n") == 1
    assert sentence in output.err
