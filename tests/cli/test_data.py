import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxyhash.cli.app import main


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / name)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROXYHASH_DATA", raising=False)
    write(tmp_path / "photos", *(f"{label}/{number}.png" for label in ("cats", "dogs") for number in range(10)))
    return tmp_path / "photos"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, int]:
    code = 0
    try:
        main(["data", *arguments] if arguments[0] != "datasets" else arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    output = capsys.readouterr()
    assert output.err == "" or code == 2
    return output.out + output.err, code


def test_datasets_are_listed_with_where_they_are(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos.parent / "[data]" / "cifar-10-batches-py").mkdir(parents=True)
    out, _ = run(capsys, "datasets", "--data-dir", "[data]")
    for words in ("cifar10", "60,000", "[data]/cifar-10-batches-py", "nuswide", "195,834", "comes with scikit-learn"):
        assert words in out
    assert f"Looked in [data], {photos.parent / 'cache' / 'data'}." in out
    rows = json.loads(run(capsys, "datasets", "--json")[0])
    assert [row["name"] for row in rows] == ["cifar10", "cifar100", "ilsvrc2012", "nuswide", "digits"]
    assert [row["where"] for row in rows] == [None] * 4 + ["comes with scikit-learn"]
    assert rows[4]["protocols"] == ["holdout", "transfer"]


def test_protocols_are_listed(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "protocols")
    for words in ("cifar10-q1000-t500-apart@1", "nuswide-t10500@1", "mAP@5000[retrieved]", "any tags"):
        assert words in out
    assert "nuswide" not in run(capsys, "protocols", "cifar100")[0]
    rows = json.loads(run(capsys, "protocols", str(photos), "--json")[0])
    assert [row["name"] for row in rows] == ["multi-label", "holdout", "transfer"]
    assert run(capsys, "protocols", "cifar-100") == (
        "proxyhash: error: There is no data set and no folder called cifar-100; did you mean cifar100?\n",
        2,
    )


def test_a_good_folder_is_described(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, code = run(capsys, "check", str(photos))
    assert code == 0
    for words in (
        "photos: 20 images",
        "2 classes, 0 images without",
        "holdout@1: 16 train, 2 validation, 16 validation database, 2 query, 18 database",
        "2 queries were held out; fingerprint ",
        "all 20 images can be decoded",
        "no picture occurs twice",
        "every query has something relevant in the database",
    ):
        assert words in out


def test_json_has_facts_protocol_and_findings(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "check", str(photos), "--json", "--threads", "1", "--seed", "3")
    report = json.loads(out)
    assert report.keys() == {"summary", "protocol", "findings", "worst_level"}
    assert report["worst_level"] == "ok"
    assert report["protocol"]["seed"] == 3
    assert report["protocol"]["sizes"]["query"] == 2
    assert {"level", "message", "count", "examples"} == report["findings"][0].keys()


def test_a_leak_is_exit_code_1(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [f"{part}/{label}" for part in ("train", "test") for label in "ab"]
    write(photos.parent / "split", *(f"{folder}/{number}.png" for folder in folders for number in "123"))
    copy = photos.parent / "split" / "test" / "a" / "copy.png"
    copy.write_bytes((photos.parent / "split" / "train" / "a" / "1.png").read_bytes())
    out, code = run(capsys, "check", "split")
    assert code == 1
    assert "error" in out
    assert "queries whose picture is also in training (a leak): 1 (test/a/copy.png = train/a/1.png)" in out
    out, code = run(capsys, "check", "split", "--json")
    assert (code, json.loads(out)["worst_level"]) == (1, "error")


def test_problems_are_named_counted_or_fatal(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cats" / "fake [bold]:cat:.jpg").write_text("no image")
    (photos / "cats" / "b\udcffd.jpg").write_bytes(b"")
    (photos / "birds").mkdir()
    out, code = run(capsys, "check", str(photos))
    assert code == 0
    flat = " ".join(out.split())
    assert "unreadable image, skipped: 1" in flat
    assert "empty file, skipped: 1" in flat
    assert "fake [bold]:cat:.jpg cannot be decoded as an image (its format is not recognized)" in flat
    assert "b\\xffd.jpg" in flat
    assert "class without images, skipped: 1 (birds)" in flat
    assert json.loads(run(capsys, "check", str(photos), "--json")[0])["worst_level"] == "warning"
    out, code = run(capsys, "check", str(photos), "--strict")
    assert code == 2
    assert out == "proxyhash: error: Stopped at the first problem, as asked: class without images: birds\n"


def test_a_folder_too_small_for_any_protocol_is_still_looked_at(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(photos.parent / "one", "a/1.png", "b/1.png")
    out, code = run(capsys, "check", "one")
    assert code == 1
    flat = " ".join(out.split())
    assert "all 2 images can be decoded" in flat
    assert "classes with one image, which can be searched but not found again: 2" in flat
    assert "one is too small for the protocol holdout: it leaves 2 images to train, 0 queries" in flat
    assert run(capsys, "check", "one", "--protocol", "holdout")[1] == 2


def test_images_without_labels_are_a_note(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, code = run(capsys, "check", str(photos / "cats"))
    assert code == 0
    assert "no labels: it can be indexed, but not trained on or evaluated" in out
    assert "protocol" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("check nowhere", "There is no data set and no folder called nowhere; choose from cifar10"),
        ("check some/where", "There is no folder some/where."),
        ("check photos/cats/1.png", "photos/cats/1.png is not a folder."),
        (
            "check photos --protocol paper",
            "no protocol 'paper' for photos; choose from multi-label, holdout, transfer.",
        ),
        ("check photos --protocol transfer", "photos has 2 classes; transfer needs at least 8, two in each fold."),
        ("check photos --fold 2", "The protocol holdout has no folds."),
        ("check photos --threads 0", "The number of threads must be at least 1, not 0."),
        ("check photos --threads -1", "The number of threads must be at least 1, not -1."),
        ("check photos --seed 1.5", "--seed: it must be a whole number, not 1.5."),
        ("check photos/cats --protocol holdout", "cats has no labels: nothing says which images are alike"),
        ("check ilsvrc2012", "ilsvrc2012 was not found in "),
    ],
)
def test_mistakes_are_one_line(arguments: str, sentence: str, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert photos.exists()
    out, code = run(capsys, *arguments.split())
    assert code == 2
    assert out.startswith("proxyhash: error: ")
    assert out.count("\n") == 1
    assert sentence in out
