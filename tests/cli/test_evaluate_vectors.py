import json
from pathlib import Path

import numpy as np
import pytest

from proxyhash.cli.app import main


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    classes = random.integers(0, 4, 400)
    vectors = (random.normal(size=(4, 16))[classes] + random.normal(size=(400, 16))).astype(np.float32)
    np.save("v.npy", vectors)
    np.save("labels.npy", classes)
    np.savez("tags.npz", tags=np.eye(4, dtype=np.uint8)[classes])
    np.savez("q.npz", vectors=vectors[:20] + np.float32(0.1), labels=classes[:20])
    np.save("q_labels.npy", classes[:20])
    np.save("narrow.npy", vectors[:, :5])
    np.save("nan.npy", np.full((30, 4), np.nan, np.float32))
    np.save("objects.npy", np.array([[{}]], object), allow_pickle=True)
    np.save("short.npy", classes[:9])


@pytest.mark.usefixtures("files")
def test_the_table_the_advice_and_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    main("evaluate vectors v.npy --labels labels.npy --bits 8,32 --num-queries 50 --plot recall.svg".split())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "350 vectors of 16 values, 50 queries, exact by cosine"
    assert lines[1].split() == ["encoding", "bytes", "per", "item", "recall@1", "recall@10", "recall@100", "mAP"]
    assert any(line.split()[:2] == ["float32", "64"] and "1.000" in line for line in lines)
    assert any(line.startswith("For a recall@10 of at least 0.9 choose int8: 16 bytes per item") for line in lines)
    assert any(line.startswith("Left out: ITQ, 32 bits. ") for line in lines)
    assert Path("recall.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "queries", "database", "has_map"),
    [
        ("", 40, 360, False),
        ("--tags tags.npz --metric l2", 40, 360, True),
        ("--max-vectors 300 --num-queries 10 --metric ip --seed 3", 10, 290, False),
        ("--labels labels.npy --queries q.npz", 20, 400, True),
        ("--labels labels.npy --queries q.npz --query-labels q_labels.npy --num-queries 5", 5, 400, True),
    ],
)
def test_json_has_every_number(
    options: str, queries: int, database: int, has_map: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["evaluate", "vectors", "v.npy", *options.split(), *"--bits 8 --method itq --k 1,5 --json".split()])
    report = json.loads(capsys.readouterr().out)
    assert report["data"] == {"database": database, "queries": queries, "width": 16}
    names = {"ITQ", "PQ", "OPQ", "RaBitQ", "int8", "float16", "float32"}
    refined = set() if "--metric ip" in options else {f"ITQ, 8 bits + int8 x{times}" for times in (1, 2, 4, 8)}
    assert {row["name"] for row in report["rows"]} == names | refined
    for row in report["rows"]:
        assert set(row["recall"]) == {"1", "5"}
        assert (row["map"] is not None) == (has_map and row["name"] not in refined)
    assert report["config"]["methods"] == ["itq"]
    assert {"versions", "machine", "advice", "notes"} <= report.keys()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("absent.npy", "There is no file absent.npy."),
        ("nan.npy --bits 4", "row 0 is not finite"),
        ("objects.npy", "holds Python objects"),
        ("v.npy --labels short.npy", "there are 400 vectors and 9 labels"),
        ("v.npy --labels labels.npy --tags tags.npz", "give one of the two files"),
        ("v.npy --queries narrow.npy", "queries have 5 values and the vectors 16"),
        ("v.npy --query-labels q_labels.npy", "add --queries"),
        ("v.npy --bits 8,x", "--bits takes whole numbers with commas"),
        ("v.npy --bits 8 --k 1000", "choose a smaller k"),
        ("v.npy --bits 8 --method itqq", "did you mean itq?"),
        ("v.npy --bits 8 --method shclm", "learns from labels"),
        ("v.npy --bits 8 --metric cos", "--metric"),
        ("v.npy --bits 8 --num-queries 400", "hold out fewer"),
        ("v.npy --bits 8 --plot recall.txt", "must end in .png"),
        ("v.npy --bits 8 --device gpu", "There is no device gpu; choose auto, cpu, cuda, cuda:1 or mps."),
        ("v.npy --bits 8 --device cuda:3", "There is no device cuda:3 here; try cpu."),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(options: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in Path().iterdir()}
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", "vectors", *options.split(), "--plot", "out.png"] if "--plot" not in options else
             ["evaluate", "vectors", *options.split()])  # fmt: skip
    assert caught.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert {path.name for path in Path().iterdir()} == before
