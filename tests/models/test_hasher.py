import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proxyhash import design_proxies
from proxyhash.codes import pack
from proxyhash.data import SkippedItems, load_dataset
from proxyhash.data.images import ArrayImages, Subset
from proxyhash.data.transforms import get_transform
from proxyhash.models import hasher as hasher_module
from proxyhash.models.backbones import create_backbone
from proxyhash.models.hasher import Hasher, concat_hashers
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
from proxyhash.models.runtime import OnnxBackend, TorchBackend
from proxyhash.models.storage import check_replaceable
from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError, ProxyhashWarning

BITS = 12


def new_hasher(hidden: int = 16) -> Hasher:
    torch.manual_seed(3)
    network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, BITS, hidden, 0.2))).eval()
    proxies = design_proxies(10, BITS, "hclm")
    return Hasher(network, get_transform("small", 8), tuple("0123456789"), proxies, {"made": "in a test"})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    new_hasher().save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in saved.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def digits() -> np.ndarray:
    images = load_dataset("digits").images
    stored = images.pixels_in_memory(np.arange(200))
    assert stored is not None
    return stored


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (150, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("pixels", [digits, pictures])
def test_saved_loaded_and_exported_agree_in_every_sign(saved: Path, pixels: type) -> None:
    images = pixels()
    before, after = new_hasher(), Hasher.load(saved)
    assert before.onnx is None
    assert isinstance(after.onnx, OnnxBackend)
    nu = before.embed(images)
    assert nu.shape == (len(images), BITS)
    assert (np.abs(nu) > 1e-5).all()  # or a sign could be either
    np.testing.assert_array_equal(after.encode(images), before.encode(images))
    np.testing.assert_array_equal(after.encode(images), pack(nu >= 0))
    np.testing.assert_allclose(after.embed(images), nu, atol=1e-4)
    np.testing.assert_allclose(after.features(images), before.features(images), rtol=1e-6)
    np.testing.assert_allclose(after.head_forward(before.features(images)), nu, atol=1e-5)
    assert after.classify(images) == [before.class_names[n] for n in before.nearest_proxies(nu)]
    assert (after.class_names, after.metadata, after.transform) == (before.class_names, before.metadata, before.transform)
    assert after.bits == BITS


def test_files_arrays_and_collections_are_images(saved: Path, tmp_path: Path) -> None:
    hasher, pixels = Hasher.load(saved), digits()[:5]
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    codes = hasher.encode(pixels)
    for images in (paths, [str(path) for path in paths], ArrayImages(pixels), Subset(ArrayImages(digits()), np.arange(5))):
        np.testing.assert_array_equal(hasher.encode(images), codes)
    np.testing.assert_array_equal(hasher.encode(paths[3]), codes[3:4])
    np.testing.assert_array_equal(hasher.encode(str(paths[3])), codes[3:4])
    assert hasher.encode(pixels[:0]).shape == (0, 2)
    assert hasher.embed([]).shape == (0, BITS)
    with pytest.raises(InputError, match="Images in memory must be bytes"):
        hasher.encode(pixels[0])
    with pytest.raises(InputError, match="Images are files, or bytes"):
        hasher.encode(list(pixels))


def test_unreadable_images_are_counted_or_an_error(saved: Path, tmp_path: Path) -> None:
    hasher = Hasher.load(saved)
    Image.fromarray(digits()[0]).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    files = [tmp_path / "bad.png", tmp_path / "good.png", tmp_path / "absent.png"]
    problems = SkippedItems()
    kept, nu = hasher.embed(files, on_error="skip", skipped=problems)
    assert kept.tolist() == [1]
    np.testing.assert_array_equal(nu, hasher.embed(files[1]))
    assert problems.counts["unreadable image"] == 2
    kept, nu = hasher.embed(files[:1], on_error="skip", skipped=SkippedItems())
    assert (len(kept), nu.shape) == (0, (0, BITS))
    with pytest.raises(InputError, match=r"absent.png is not there.$"):
        hasher.encode(files[1:])


def test_without_onnxruntime_everything_works_through_torch(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hasher_module, "is_onnx_available", lambda: False)
    loaded = Hasher.load(saved)
    assert isinstance(loaded._backend(), TorchBackend)
    np.testing.assert_array_equal(loaded.encode(digits()), new_hasher().encode(digits()))
    loaded.save(tmp_path / "model")
    assert not (tmp_path / "model" / "model.onnx").exists()
    np.testing.assert_array_equal(Hasher.load(tmp_path / "model").encode(digits()), loaded.encode(digits()))


def test_a_network_that_cannot_be_exported_is_saved_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("This network cannot be written as ONNX.")

    monkeypatch.setattr(hasher_module, "export_onnx", refuse)
    hasher = new_hasher()
    with pytest.warns(ProxyhashWarning, match="The model is saved without its ONNX file"):
        hasher.save(tmp_path / "model")
    np.testing.assert_array_equal(Hasher.load(tmp_path / "model").encode(digits()), hasher.encode(digits()))


def test_a_model_answers_for_itself_when_its_folder_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Hasher.load(folder)
    assert isinstance(first.onnx, OnnxBackend)
    monkeypatch.setattr(hasher_module, "is_onnx_available", lambda: False)
    codes = first.encode(digits())
    new_hasher(hidden=8).save(folder)
    np.testing.assert_array_equal(first.encode(digits()), codes)
    assert Hasher.load(folder).head.config.hidden_dim == 8


def test_a_failed_save_leaves_the_good_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = Hasher.load(folder).encode(digits())

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hasher_module, "save_file", fail)
    with pytest.raises(InputError, match="no space is left on its disk; free some"):
        new_hasher(hidden=8).save(folder)
    np.testing.assert_array_equal(Hasher.load(folder).encode(digits()), codes)
    assert [child.name for child in folder.parent.iterdir()] == ["model"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rewrite(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"weights": [1.0]}))
    config = json.loads((folder / "config.json").read_text())
    rewrite(folder, sha256=config["sha256"] | {"model.safetensors": checksum(folder / "model.safetensors", "sha256")})


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: flip(f / "model.safetensors"), "model.safetensors is damaged: its checksum differs."),
        (lambda f: flip(f / "proxies.safetensors"), "proxies.safetensors is damaged: its checksum differs."),
        (lambda f: flip(f / "model.onnx"), "model.onnx is damaged: its checksum differs."),
        (lambda f: (f / "model.safetensors").write_bytes(pickle.dumps([1])), "model.safetensors is damaged"),
        (pickled, "is not a model that can be read: "),
        (lambda f: (f / "model.safetensors").unlink(), "is not a whole model: model.safetensors is missing."),
        (lambda f: (f / "proxies.safetensors").unlink(), "is not a whole model: proxies.safetensors is missing."),
        (lambda f: (f / "config.json").unlink(), "is not a model: it has no config.json."),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read: "),
        (lambda f: rewrite(f, format="other/3"), "its format is not proxyhash.hasher/2."),
        (lambda f: rewrite(f, head={"width": 3, "bits": 4}), "is not a model that can be read: "),
        (lambda f: rewrite(f, head=None), "is not a model that can be read: "),
        (lambda f: rewrite(f, sha256=None), "is not a model that can be read: "),
        (lambda f: rewrite(f, backbone="vgg"), "There is no backbone 'vgg'"),
    ],
)
def test_a_damaged_model_is_refused_in_one_sentence(folder: Path, damage: type, sentence: str) -> None:
    damage(folder)
    with pytest.raises(InputError) as error:
        Hasher.load(folder)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_model_is_said_to_be_none(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        with pytest.raises(InputError, match=f"{name} is not a model: it has no config.json."):
            Hasher.load(tmp_path / name)
    with pytest.raises(InputError, match=f"it holds {saved.name}, choose {saved}"):
        Hasher.load(saved.parent)


def test_the_onnx_file_may_be_missing(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    assert Hasher.load(folder).onnx is None


def test_only_models_are_replaced(folder: Path, tmp_path: Path) -> None:
    check_replaceable(folder)
    check_replaceable(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"is a file; a model is a folder."):
        check_replaceable(tmp_path / "file")
    with pytest.raises(InputError, match="holds other things than a model"):
        check_replaceable(tmp_path)  # a folder of models
    for foreign in ("notes.txt", "16"):
        (folder / foreign).mkdir()
        with pytest.raises(InputError, match="holds other things than a model"):
            new_hasher().save(folder)
        (folder / foreign).rmdir()
    rewrite(folder, format="somebody else's")
    with pytest.raises(InputError, match="holds other things than a model"):
        check_replaceable(folder)
    for nameless in (Path(), Path("..")):
        with pytest.raises(InputError, match="give the folder of the model a name"):
            check_replaceable(nameless)


def test_without_proxies_it_does_not_classify() -> None:
    hasher = new_hasher()
    hasher.proxies = None
    with pytest.raises(InputError, match="trained without proxies"):
        hasher.classify(digits())


def test_several_lengths_are_embedded_in_one_pass(tmp_path: Path) -> None:
    first = new_hasher()
    second = Hasher(HashNetwork(first.network.features.backbone, HashHead(HeadConfig(256, 8))).eval(), first.transform)
    both = concat_hashers([first, second])
    expected = np.concatenate([first.embed(pictures()), second.embed(pictures())], axis=1)
    np.testing.assert_array_equal(both.embed(pictures()), expected)
    both.use_onnx(tmp_path / "both.onnx")
    assert both.onnx is not None
    np.testing.assert_allclose(both.embed(pictures()), expected, atol=1e-4)
