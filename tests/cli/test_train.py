"""From labeled images to a model and its numbers, by the commands a person types."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from proxyhash.cli.app import main
from proxyhash.codes import pack
from proxyhash.data import load_dataset
from proxyhash.models import extraction, hasher
from proxyhash.models.hasher import Hasher

TRAIN = "train digits --backbone convnet --finetune all"


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.set_num_threads(1)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _torch_only(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """Spare the seconds of an export, once the models are there."""
    for module in (hasher, extraction):
        monkeypatch.setattr(module, "is_onnx_available", lambda: False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lengths in one run, long enough to be good."""
    folder = tmp_path_factory.mktemp("digits") / "models"
    main(f"{TRAIN} --bits 8,16 --epochs 10 --tensorboard {folder}.board -o {folder}".split())
    return folder


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(command.split())
    return capsys.readouterr().out


def error(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line on standard error of a command that must fail."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.out == ""
    assert output.err.startswith("proxyhash: error: ")
    assert output.err.count("\n") == 1
    return output.err


def test_digits_reach_the_floor(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [json.loads(line) for line in Path(f"{models}.run/log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == list(range(1, 11))
    assert max(entry["map_16"] for entry in log) > 0.8
    assert max(entry["accuracy_16"] for entry in log) > 0.9
    numbers = json.loads(run(f"evaluate model {models}/16 --json", capsys))
    assert numbers["map"] > 0.75
    assert numbers["map"] == numbers["metrics"][0]["value"]
    assert numbers["accuracy"] > 0.9
    assert 0 < numbers["binarization_error"] < 0.5
    shorter = run(f"evaluate model {models}/8", capsys)
    assert "179 queries, 1,618 items" in shorter
    assert "Accuracy by nearest proxy: 0." in shorter
    assert [Hasher.load(models / bits).bits for bits in ("8", "16")] == [8, 16]


def test_tensorboard_has_every_epoch(models: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(f"{models}.board")
    board.Reload()
    assert {"loss", "map", "map_8", "map_16", "accuracy_8", "images_per_second"} <= set(board.Tags()["scalars"])
    assert [event.step for event in board.Scalars("map")] == list(range(1, 11))


def test_encode_writes_codes_and_names(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = load_dataset("digits").images
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.fromarray(images.read(number)).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "bad.png").write_bytes(b"no image")
    out = run(f"encode {models}/8 {tmp_path}/photos -o {tmp_path}/codes.npz", capsys)
    assert "Left out: unreadable image: 1" in out
    assert "3 codes of 8 bits are in" in out
    with np.load(tmp_path / "codes.npz") as found:
        assert found["keys"].tolist() == ["0.png", "1.png", "2.png"]
        assert int(found["bits"]) == 8
        stored = images.pixels_in_memory(np.arange(3))
        assert stored is not None
        np.testing.assert_array_equal(found["codes"], Hasher.load(models / "8").encode(stored))
    assert "1 codes" in run(f"encode {models}/8 {tmp_path}/photos/1.png -o {tmp_path}/one.npz", capsys)
    assert "bad.png" in error(f"encode {models}/8 {tmp_path}/photos --strict -o {tmp_path}/none.npz", capsys)
    message = error(f"encode {models}/8 {tmp_path}/photos/bad.png -o {tmp_path}/none.npz", capsys)
    assert "None of the images in" in message
    assert not (tmp_path / "none.npz").exists()


def test_export_writes_what_others_can_run(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(f"export {models}/16 -o {tmp_path}/hash.onnx", capsys)
    assert "pixels (n, 3, 8, 8) from 0 to 255 -> nu (n, 16); signs verified." in out
    session = onnxruntime.InferenceSession(str(tmp_path / "hash.onnx"))
    stored = load_dataset("digits").images.pixels_in_memory(np.arange(7))
    assert stored is not None
    (nu,) = session.run(None, {"pixels": stored.transpose(0, 3, 1, 2).astype(np.float32)})
    np.testing.assert_array_equal(pack(nu >= 0), Hasher.load(models / "16").encode(stored))


def write_photos(folder: Path, colors: dict[str, tuple[int, int, int]], count: int) -> None:
    """Write noisy images of one color each, class by class."""
    random = np.random.default_rng(0)
    for name, color in colors.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noisy = np.clip(np.array(color) + random.normal(0, 40, (12, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / name / f"{number}.png")


COLORS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "neutral": (120, 120, 120)}


def test_a_folder_of_images_is_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_photos(tmp_path / "photos", COLORS, 20)
    (tmp_path / "photos" / "red" / "bad.png").write_bytes(b"no image")
    plan = "--backbone convnet --bits 6 --epochs 8 --batch-size 16 --hidden-dim 32"
    out = run(f"train {tmp_path}/photos {plan} --triplet 1 -o {tmp_path}/model", capsys)
    assert "Left out: unreadable image: 1 (red/bad.png)" in out
    assert json.loads(run(f"evaluate model {tmp_path}/model --json", capsys))["map"] > 0.9
    loaded = Hasher.load(tmp_path / "model")
    assert loaded.class_names == ("blue", "green", "neutral", "red")
    assert loaded.classify(tmp_path / "photos" / "red" / "3.png") == ["red"]
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    assert f"There is no folder {tmp_path}/photos." in error(f"evaluate model {tmp_path}/model", capsys)
    assert '"map"' in run(f"evaluate model {tmp_path}/model --data {tmp_path}/moved --json", capsys)


def test_tagged_images_are_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_photos(tmp_path, COLORS, 20)
    tags = {"red": "warm;color", "green": "color", "blue": "cold;color", "neutral": "cold"}
    rows = [f"{name}/{number}.png,{tags[name]}" for name in COLORS for number in range(20)]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,tags", *rows]))
    plan = "--backbone convnet --bits 8 --epochs 6 --batch-size 16 --hidden-dim 32"
    run(f"train {tmp_path} {plan} -o {tmp_path}/../tagged", capsys)
    numbers = json.loads(run(f"evaluate model {tmp_path}/../tagged --json", capsys))
    assert numbers["map"] > 0.8
    assert numbers["accuracy"] is None
    assert numbers["protocol"]["protocol"] == "multi-label"
    assert Hasher.load(tmp_path / ".." / "tagged").class_names == ("cold", "color", "warm")
    shutil.rmtree(tmp_path / ".." / "tagged")


def test_classes_held_out_for_validation_have_no_proxies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(f"{TRAIN} --validation classes --method hclm --bits 8 --epochs 1 -o {tmp_path}/model", capsys)
    assert len(Hasher.load(tmp_path / "model").class_names) == 8
    (line,) = (tmp_path / "model.run" / "log.jsonl").read_text().splitlines()
    entry = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert "accuracy_8" not in entry


def test_resume_needs_the_same_command_and_a_refused_one_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"{TRAIN} --method random --bits 8 --epochs 1 -o {tmp_path}/model"
    run(command, capsys)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    longer = command.replace("--epochs 1", "--epochs 2")
    assert "was started with epochs = 1, not 2; resume" in error(f"{longer} --resume", capsys)
    assert "was started with lr = 0.004, not 0.1" in error(f"{command} --resume --lr 0.1", capsys)
    assert "There is no run to resume in" in error(f"{command}2 --resume", capsys)
    error(f"{command} --tau -1", capsys)
    error(f"{command} --transform paper-cifr", capsys)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert "Saved" in run(f"{command} --resume", capsys)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before[tmp_path / "model" / "model.safetensors"]


def test_a_failed_run_leaves_the_good_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{TRAIN} --method random --bits 8 --epochs 1 -o {tmp_path}/model"
    run(command, capsys)
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    message = error(f"{command} --lr 1e38 --tau 1e38", capsys)
    assert "start again with a lower learning rate; the last checkpoint is in" in message
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "train digits --backbone convnet --method shcml -o new",
            "There is no method 'shcml'; did you mean shclm?",
        ),
        (
            "train digits --backbone convnet --method shclm:tau=4 --tau 3 -o new",
            "tau is given twice: with the method and by itself.",
        ),
        ("train digits --backbone convnet --method joint:flor=0.5 -o new", "has no setting 'flor'"),
        (
            "train digits --backbone convnet --method joint:distance_share -o new",
            "typed name:setting=value, not joint:distance_share.",
        ),
        ("train digits --backbone convnt -o new", "There is no backbone 'convnt'; did you mean convnet?"),
        ("train digits --backbone convnet --protocol cifar -o new", "There is no protocol 'cifar' for digits"),
        (
            "train digits --bits 32,x -o new",
            "--bits takes whole numbers with commas between them, such as 16,32,64, not 32,x.",
        ),
        ("train digits --bits 8,8 -o new", "Code lengths must be different whole numbers from 1 upwards"),
        ("train digits --bits 0 -o new", "Code lengths must be different whole numbers from 1 upwards"),
        ("train digits -o file", "file is a file; a model is a folder."),
        ("train digits -o file/model", "Cannot write file/model"),
        ("train digits -o other", "other holds other things than a model; choose another folder."),
        ("train digits --bits 8,16 -o other", "other/8 holds other things than a model"),
        ("train digits -o .", "give the folder of the model a name."),
        ("train absent -o new", "There is no data set and no folder called absent"),
        ("train absent/folder -o new", "There is no folder absent/folder."),
        ("train digts -o new", "did you mean digits?"),
        ("train digits", "--output"),
        ("train digits --epoch 3 -o new", "--epoch"),
        ("train digits --epochs 2.5 -o new", "--epochs: it must be a whole number, not 2.5."),
        ("train digits --epochs 0 -o new", "epochs must be at least 1, not 0."),
        ("train digits --validation half -o new", "half"),
        ("train digits --backbone convnet --transform tiny -o new", "There is no transform 'tiny'"),
        ("train digits --finetune all --backbone-lr 0 -o new", "backbone_lr is the learning rate of fine-tuning"),
        ("train digits --backbone-lr 0.1 -o new", "backbone_lr is the learning rate of fine-tuning"),
        ("train digits --tags 3 -o new", "digits has no tags to choose the most frequent from."),
        ("train digits --device tpu -o new", "There is no device tpu; choose auto, cpu, cuda, cuda:1 or mps."),
        ("train digits --tensorboard file -o new", "Cannot write file"),
        ("train digits --backbone convnet --bits 2 -o new", "10 classes cannot have different codes of 2 bits"),
        ("encode absent other -o codes.npz", "absent is not a model: it has no config.json."),
        ("encode other other -o other", "Cannot write other: it is a folder."),
        ("evaluate model other", "other is not a model: it has no config.json."),
        ("evaluate model file", "file is not a model: it has no config.json."),
        ("export other -o model.onnx", "other is not a model: it has no config.json."),
        ("export other", "--output"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    Path("other/8").mkdir(parents=True)
    Path("other/8/notes.txt").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    assert sentence in error(arguments, capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_models_say_what_they_are(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"it holds 16, 8, choose {models}/16." in error(f"evaluate model {models}", capsys)
    assert "is a model of one length" in error(f"train digits --bits 8,16 -o {models}/8", capsys)
    loaded = Hasher.load(models / "8")
    loaded.metadata.clear()
    loaded.save(tmp_path / "bare")
    assert "does not say what it was trained on" in error(f"evaluate model {tmp_path}/bare", capsys)


def test_without_tensorboard_one_sentence_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    message = error(f"{TRAIN} --tensorboard {tmp_path}/board -o {tmp_path}/model", capsys)
    assert "--tensorboard needs TensorBoard: pip install 'proxyhash[tensorboard]'." in message


def test_other_systems_train_networks_by_their_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(f"{TRAIN} --bits 8 --epochs 1 --method dpsh -o {tmp_path}/model", capsys)
    assert Hasher.load(tmp_path / "model").metadata["config"]["method"] == "dpsh"
    run(f"{TRAIN} --bits 16 --epochs 1 --method joint:distance_share=0.5 --tau 4 -o {tmp_path}/joint", capsys)
    config = Hasher.load(tmp_path / "joint").metadata["config"]
    assert (config["method"], config["settings"]["distance_share"], config["settings"]["tau"]) == ("joint", 0.5, 4.0)
    assert "has no setting 'tau'" in error(f"{TRAIN} --bits 8 --method dpsh --tau 3 -o {tmp_path}/other", capsys)
    listed = {row["name"]: row for row in json.loads(run("methods --json", capsys))}
    assert (listed["itq"]["family"], listed["dpsh"]["year"]) == ("shallow", 2016)
    assert listed["subic"]["metric"] == "one-hot blocks"


def test_a_system_that_does_not_search_by_bits_is_measured_and_has_no_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(f"{TRAIN} --bits 8 --epochs 2 --method softmax-pq -o {tmp_path}/model", capsys)
    numbers = json.loads(run(f"evaluate model {tmp_path}/model --json", capsys))
    assert numbers["binarization_error"] is None
    assert "real distances" in numbers["metrics"][0]["name"]
    assert numbers["map"] > 0.3
    assert "Binarisation" not in run(f"evaluate model {tmp_path}/model", capsys)
    message = error(f"index add {tmp_path} --model {tmp_path}/model --index {tmp_path}/index", capsys)
    assert "This model searches by product quantizer, and an index only by Hamming distance; use evaluate model." in message
