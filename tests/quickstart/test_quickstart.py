"""Quickstart on small images in every layout."""

import json
import re
import shlex
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.images import class_image, write_class_folders, write_tagged_folder
from proxyhash.cli.app import main
from proxyhash.experiments import read_records
from proxyhash.index import Index
from proxyhash.models import extraction, hasher
from proxyhash.models.hasher import Hasher
from proxyhash.training.trainer import Trainer


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Work in an empty folder with an empty cache, without ONNX exports and mostly without figures, which take seconds."""
    if request.node.name != "test_class_folders_are_trained_evaluated_and_indexed":
        monkeypatch.setattr("proxyhash.report.page.draw_figures", lambda _: iter(()))
    torch.set_num_threads(1)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for module in (hasher, extraction):
        monkeypatch.setattr(module, "is_onnx_available", lambda: False)


Quickstart = Callable[[str], dict[str, Any]]


@pytest.fixture
def quickstart(capsys: pytest.CaptureFixture[str]) -> Quickstart:
    def run(options: str) -> dict[str, Any]:
        main(["quickstart", *options.split(), "--json"])
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    return run


def test_class_folders_are_trained_evaluated_and_indexed(quickstart: Quickstart, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "photos", dict.fromkeys("abcd", 30))
    result = quickstart("photos --epochs 3")
    assert (result["config"]["method"], result["config"]["bits"], result["config"]["backbone"]) == ("shclm", 16, "convnet")
    assert result["metrics"]["map"] > 0.9
    assert result["metrics"]["accuracy"] > 0.9
    assert set(result["metrics"]["compared"]) == {"learned", "shclm"}
    assert result["metrics"]["indexed"] == 120
    with Index.open("photos-quickstart/index") as index:
        class_image(2, 500).save("query.png")
        (found,) = index.search("query.png", 10)
        assert [match.labels for match in found] == [("c",)] * 10
        assert index.info().calibrated
    page = Path("photos-quickstart/report.html").read_text()
    assert page.count("data:image/jpeg;base64,") > 50
    assert "Quickstart of photos" in page
    assert page.count("data:image/svg+xml;base64,") == 5
    card = Path("photos-quickstart/model/README.md").read_text()
    assert f"| {result['metrics']['map']:.4f} |" in card
    assert "more likely right than wrong up to" in card


def test_printed_commands_give_the_same_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_class_folders(tmp_path / "my photos", dict.fromkeys("abc", 12))
    main(["quickstart", "my photos", "--epochs", "2", "-o", "made at once"])
    printed = capsys.readouterr().out
    lines = [line.strip() for line in printed.splitlines() if line.startswith("  proxyhash ")]
    assert "step by step" in printed
    assert "given as an option" in printed
    assert len(lines) == 8  # five steps, and what to do next
    for line in lines[:5]:
        main([word.replace("made at once", "made by hand") for word in shlex.split(line)[1:]])
    once, by_hand = Hasher.load("made at once/model"), Hasher.load("made by hand/model")
    pixels = np.stack([np.asarray(class_image(kind, 7)) for kind in range(3)])
    assert np.array_equal(once.encode(pixels), by_hand.encode(pixels))
    assert len(Index.open("made by hand/index")) == 36
    assert Path("made by hand/report.html").read_text().count("data:image/jpeg;base64,") > 20
    main(shlex.split(lines[5].replace("IMAGE", "'my photos/a/0-0.png'"))[1:])
    assert Path("found.png").is_file()
    main(shlex.split(lines[6].replace("MORE-IMAGES", "'my photos/a'"))[1:])
    assert "48 items" in capsys.readouterr().out


def test_tagged_images_some_without_tags(quickstart: Quickstart, tmp_path: Path) -> None:
    write_tagged_folder(tmp_path / "photos", 84)
    result = quickstart("photos --epochs 4")
    assert result["summary"]["kind"] == "tags"
    assert result["summary"]["unlabeled"] == 4
    assert result["config"]["bits"] == 32
    assert result["metrics"]["map"] > 0.5
    assert result["metrics"]["indexed"] == 84


def test_partly_labeled_images_with_rare_classes(quickstart: Quickstart, tmp_path: Path) -> None:
    sizes = {"": 10, "many": 30, "some": 12, "few": 4, "two": 2, "lone": 1, "single": 1}
    write_class_folders(tmp_path / "photos", sizes)
    Path("photos/many/broken.png").write_bytes(b"not a picture")
    result = quickstart("photos --epochs 4")
    summary = result["summary"]
    assert (summary["classes"], summary["shared"], summary["unlabeled"]) == (6, 4, 10)
    assert result["config"]["method"] == "shclm"
    assert result["metrics"]["indexed"] == 60
    assert Hasher.load("photos-quickstart/model").class_names == ("few", "lone", "many", "single", "some", "two")


def test_unlabeled_images_are_indexed_without_evaluation(quickstart: Quickstart, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for kind, number in product(range(3), range(16)):
        class_image(kind, number).save(tmp_path / "photos" / f"{kind}-{number}.png")
    result = quickstart("photos --backbone convnet")
    assert (result["config"]["method"], result["config"]["bits"]) == ("itq", 256)
    assert result["metrics"].keys() == {"indexed", "neighbor_recall"}
    assert result["metrics"]["indexed"] == 48
    assert 0.5 < result["metrics"]["neighbor_recall"] < 1
    assert result["example"]["key"] == "0-0.png"
    assert sum(match["key"].startswith("0-") for match in result["example"]["matches"]) >= 4
    assert len(result["commands"]) == 3
    with Index.open("photos-quickstart/index") as index:
        (found,) = index.search("photos/1-3.png", 6)
        assert found[0].key == "1-3.png"
        assert sum(match.key.startswith("1-") for match in found) >= 5  # colors are alike by any features
    page = Path("photos-quickstart/report.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 8 * 11
    assert "right" not in page.partition("</style>")[2]
    assert "No labels were used." in Path("photos-quickstart/model/README.md").read_text()


def test_a_flat_folder_takes_one_command_that_shows_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    for kind, number in product(range(3), range(8)):
        class_image(kind, number).save(tmp_path / "photos" / f"{kind}-{number}.png")
    main("quickstart photos --backbone convnet".split())
    printed = capsys.readouterr().out
    assert "photos: 24 images without labels" in printed
    assert "mAP" not in printed
    assert "accuracy" not in printed
    assert re.search(r"^The codes keep \d+ % of the 10 nearest images by features\.$", printed, re.MULTILINE)
    nearest = printed.partition("Nearest to 0-0.png:\n")[2].splitlines()[:5]
    assert all(re.fullmatch(r" +\d+ bits  [0-2]-\d\.png", line) for line in nearest)
    with Index.open("photos-quickstart/index") as index:
        (found,) = index.search("photos/0-0.png", 6)
    assert [line.split()[-1] for line in nearest] == [match.key for match in found if match.key != "0-0.png"]


@pytest.mark.parametrize("sizes", [{"only": 20}, dict.fromkeys("abcdefghijklmnopqrst", 1)])
def test_labels_that_cannot_be_learned_are_kept_in_the_index(
    sizes: dict[str, int], quickstart: Quickstart, tmp_path: Path
) -> None:
    write_class_folders(tmp_path / "photos", sizes)
    result = quickstart("photos --backbone convnet")
    assert result["config"]["method"] == "itq"
    with Index.open("photos-quickstart/index") as index:
        (found,) = index.search("photos/" + next(iter(sizes)) + "/0-0.png", 1)
    assert found[0].labels == (next(iter(sizes)),)


def test_second_run_repeats_nothing_and_new_images_start_again(
    quickstart: Quickstart, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_class_folders(tmp_path / "photos", dict.fromkeys("abc", 12))
    first = quickstart("photos --epochs 2")
    made = {path: path.stat().st_mtime_ns for path in Path("photos-quickstart").rglob("*") if path.is_file()}
    assert quickstart("photos --epochs 2") == first
    assert {path: path.stat().st_mtime_ns for path in made} == made
    main("quickstart photos --epochs 2".split())
    assert capsys.readouterr().out.count("done before") == 5
    Path("photos/c/2-0.png").unlink()
    write_class_folders(tmp_path / "photos", {"a": 0, "b": 0, "c": 0, "d": 12})
    more = quickstart("photos --epochs 2")
    assert more["metrics"]["indexed"] == 47
    assert Hasher.load("photos-quickstart/model").class_names == ("a", "b", "c", "d")
    methods = [record.trial["method"] for record in read_records(Path("photos-quickstart/results"))]
    assert sorted(methods) == ["learned", "shclm"]


def test_interrupted_training_resumes(
    quickstart: Quickstart, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_class_folders(tmp_path / "photos", dict.fromkeys("abc", 12))
    end_epoch, epochs = Trainer._end_epoch, []

    def interrupted(trainer: Trainer, *rest: Any) -> None:
        end_epoch(trainer, *rest)
        epochs.append(1)
        if len(epochs) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "_end_epoch", interrupted)
    with pytest.raises(SystemExit) as stop:
        main("quickstart photos --epochs 4".split())
    assert stop.value.code == 130
    assert capsys.readouterr().err == "proxyhash: stopped; the same command continues where this one stopped.\n"
    result = quickstart("photos --epochs 4")
    assert result["metrics"]["indexed"] == 36
    log = [json.loads(line) for line in Path("photos-quickstart/model.run/log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == [1, 2, 3, 4]
    assert len(epochs) == 3 + 1 + 2 * 4  # the rest of the training, and the two that are compared


def test_quiet_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_class_folders(tmp_path / "photos", dict.fromkeys("ab", 6))
    main("quickstart photos --epochs 1 --quiet".split())
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")
    assert Path("photos-quickstart/report.html").is_file()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("absent", "There is no folder absent; quickstart takes a folder of your own images."),
        ("photos -o photos/made", "photos/made lies among the images of photos; choose a folder elsewhere with -o."),
        ("photos -o other", "other holds other things; choose another folder with -o."),
        ("photos -o file", "file is a file; choose a folder with -o."),
        ("empty", "holds no images"),
        ("unreadable", "None of the images of unreadable that were tried can be read; see proxyhash data check."),
    ],
)
def test_user_errors(options: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_class_folders(tmp_path / "photos", {"a": 2, "b": 2})
    for name in ("other/kept", "empty", "unreadable/a"):
        (tmp_path / name).mkdir(parents=True)
    Path("file").write_text("kept")
    Path("unreadable/a/1.png").write_bytes(b"nothing")
    with pytest.raises(SystemExit) as stop:
        main(["quickstart", *options.split()])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_folder_with_the_name_of_a_data_set(quickstart: Quickstart, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "digits", {"a": 6, "b": 6})
    Image.new("RGB", (16, 16)).save("digits/a/black.png")
    assert quickstart("digits --epochs 1")["metrics"]["indexed"] == 13
