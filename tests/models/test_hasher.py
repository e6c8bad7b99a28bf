import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from helpers.models import relist, rewrite_json
from proxyhash import design_proxies
from proxyhash.codes import pack
from proxyhash.data import SkippedItems, load_dataset
from proxyhash.data.images import ArrayImages, Subset
from proxyhash.data.transforms import get_transform
from proxyhash.models import hasher as hasher_module
from proxyhash.models.backbones import create_backbone
from proxyhash.models.hasher import Hasher, concat_hashers
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
from proxyhash.models.onnx_backend import OnnxBackend
from proxyhash.models.probe import check_onnx, write_probe
from proxyhash.models.storage import check_replaceable, config_sha256, fingerprint
from proxyhash.models.torch_backend import TorchBackend
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
    for name in ("is_onnx_available", "is_onnxruntime_available"):
        monkeypatch.setattr(hasher_module, name, lambda: False)
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
    rewrite_json(folder / "config.json", **changes)


def rewrite_transform(folder: Path, **changes: object) -> None:
    rewrite(folder, transform=json.loads((folder / "config.json").read_text())["transform"] | changes)


def rewrite_head(folder: Path, **changes: object) -> None:
    rewrite(folder, head=json.loads((folder / "config.json").read_text())["head"] | changes)


def rewrite_weights(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.ndim > 1)
    save_file(tensors | {name: change(tensors[name])}, folder / "model.safetensors")
    relist(folder, "model.safetensors")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"weights": [1.0]}))
    relist(folder, "model.safetensors")


def misspell(path: Path) -> None:
    path.write_text(path.read_text().replace("in a test", "in a text"))


def nest(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        text.replace('"metadata": {', '"metadata": {"a": ' + "[" * 50_000 + "]" * 50_000 + ",")
    )


def unlist(folder: Path, *names: str) -> None:
    sums = json.loads((folder / "config.json").read_text())["sha256"]
    rewrite(folder, sha256={name: value for name, value in sums.items() if name not in names})


def list_file(folder: Path, name: str) -> None:
    sums = json.loads((folder / "config.json").read_text())["sha256"]
    rewrite(folder, sha256=sums | {name: "0" * 64})


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
        (lambda f: (f / "config.json").write_text("{"), "config.json is damaged: "),
        (lambda f: rewrite(f, format="other/3"), "is not a file of the format proxyhash.hasher/3."),
        (lambda f: rewrite(f, head={"width": 3, "bits": 4}), "is not a model that can be read: "),
        (lambda f: rewrite(f, head=None), "is not a model that can be read: "),
        (lambda f: rewrite(f, sha256=None), "config.json has no checksum of model.safetensors."),
        (lambda f: rewrite(f, format="proxyhash.hasher/4", requires="0.7"), "hasher/4 and needs proxyhash 0.7 or later."),
        (lambda f: misspell(f / "config.json"), "config.json is damaged: its content does not match its checksum."),
        (nest, "config.json is damaged: it is nested too deeply."),
        (lambda f: rewrite(f, backbone=["convnet"]), "backbone must be a name."),
        (lambda f: rewrite(f, class_names=[1, 2]), "class_names must be a list of names."),
        (lambda f: rewrite(f, class_names="cats"), "class_names must be a list of names."),
        (lambda f: rewrite(f, metadata=7), "config.json: metadata must be a table, not 7."),
        (lambda f: rewrite(f, transform=[1]), "transform must be a table, not [1]."),
        (lambda f: rewrite_transform(f, size=0), "transform.size must be a whole number from 1 to 4096, not 0."),
        (lambda f: rewrite_transform(f, size=-5), "transform.size must be a whole number from 1 to 4096, not -5."),
        (lambda f: rewrite_transform(f, size="a"), "transform.size must be a whole number from 1 to 4096, not 'a'."),
        (lambda f: rewrite_transform(f, size=10**6), "transform.size must be a whole number from 1 to 4096, not 1000000."),
        (lambda f: rewrite_transform(f, size=10**900), "from 1 to 4096, not a number of 900 digits."),
        (lambda f: rewrite_transform(f, side=None), "transform.side must be a whole number from 1 to 4096, not None."),
        (lambda f: rewrite_transform(f, fit="crooked"), "transform: fit is one of squash, cover, not 'crooked'."),
        (lambda f: rewrite_transform(f, crop="window9"), "transform: crop is one of none, random_crop, "),
        (lambda f: rewrite_transform(f, crop=["none"]), "is not a model that can be read: "),
        (lambda f: rewrite_transform(f, rotate=90), "transform has no setting 'rotate'"),
        (lambda f: rewrite_head(f, bits=10**9), "describes a larger head than model.safetensors holds."),
        (lambda f: rewrite_head(f, bits=10**900), "is not a model that can be read: "),
        (lambda f: rewrite_head(f, bits=-1), "is not a model that can be read: "),
        (lambda f: rewrite_head(f, bits="8"), "is not a model that can be read: "),
        (lambda f: rewrite_head(f, kind=["tanh"]), "is not a model that can be read: "),
        (lambda f: rewrite_weights(f, lambda w: w * torch.nan), "model.safetensors holds numbers that are not finite, in "),
        (lambda f: rewrite_weights(f, lambda w: w / 0), "model.safetensors holds numbers that are not finite, in "),
        (lambda f: rewrite_weights(f, lambda w: w.int()), "has the type torch.int32."),
        (lambda f: rewrite_weights(f, lambda w: w[:1]), "is not a model that can be read: "),
        (lambda f: unlist(f, "model.onnx"), "model.onnx is not listed in config.json; delete the file, or save the model"),
        (lambda f: unlist(f, "probe.safetensors"), "probe.safetensors is not listed in config.json; delete the file"),
        (lambda f: unlist(f, "proxies.safetensors"), "proxies.safetensors is not listed in config.json; delete the file"),
        (lambda f: unlist(f, "model.safetensors"), "config.json has no checksum of model.safetensors."),
        (lambda f: (f / "probe.safetensors").unlink(), "is not a whole model: probe.safetensors is missing."),
        (
            lambda f: list_file(f, "../../etc/passwd"),
            "config.json lists '../../etc/passwd', which is not a file of a model.",
        ),
        (lambda f: list_file(f, "/etc/passwd"), "config.json lists '/etc/passwd', which is not a file of a model."),
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
    (folder / "probe.safetensors").unlink()
    assert Hasher.load(folder).onnx is None


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another network of the same shape."""
    hasher = new_hasher()
    with torch.no_grad():
        for parameter in hasher.head.parameters():
            parameter.mul_(0.9)
    hasher.save(tmp_path_factory.mktemp("other") / "model")
    assert hasher.folder is not None
    return hasher.folder


def test_a_swapped_onnx_file_is_found_even_with_its_checksum(folder: Path, other: Path) -> None:
    (folder / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    relist(folder, "model.onnx")
    with pytest.raises(InputError, match=r"model.onnx does not give the outputs of this model; delete model.onnx, or save"):
        Hasher.load(folder)
    with pytest.raises(InputError, match=r"model.onnx does not give the outputs of this model"):
        check_onnx(folder)


def test_an_onnx_file_of_an_older_model_is_compared_with_the_network(folder: Path, other: Path) -> None:
    unlist(folder, "probe.safetensors")
    (folder / "probe.safetensors").unlink()
    rewrite(folder, format="proxyhash.hasher/2")
    assert isinstance(Hasher.load(folder).onnx, OnnxBackend)
    (folder / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    relist(folder, "model.onnx")
    with pytest.raises(InputError, match=r"model.onnx does not give the outputs of this model"):
        Hasher.load(folder)


def test_onnxruntime_checks_a_model_without_torch(saved: Path, other: Path, folder: Path) -> None:
    (folder / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    relist(folder, "model.onnx")
    script = (
        "import sys; from pathlib import Path; from proxyhash.models.probe import check_onnx; "
        "check_onnx(Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    for model, problem in ((saved, ""), (folder, "does not give the outputs of this model")):
        run = subprocess.run([sys.executable, "-c", script, str(model)], check=False, capture_output=True, text=True)
        assert (run.returncode != 0) == bool(problem), run.stderr
        assert problem in run.stderr


@pytest.mark.parametrize(
    "outputs", [np.zeros((2, BITS), np.float64), np.zeros((1, BITS), np.float32), np.full((2, 3), np.nan)]
)
def test_a_damaged_probe_is_refused(folder: Path, outputs: np.ndarray) -> None:
    write_probe(folder / "probe.safetensors", outputs)
    relist(folder, "probe.safetensors")
    with pytest.raises(InputError, match=r"probe.safetensors is damaged: it does not hold the outputs of two images."):
        Hasher.load(folder)


def test_the_checksum_of_a_configuration_covers_the_onnx_file(folder: Path, other: Path) -> None:
    before = fingerprint(folder), config_sha256(folder)
    (folder / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    relist(folder, "model.onnx")
    assert fingerprint(folder) == before[0]
    assert config_sha256(folder) != before[1]


def test_proxies_that_do_not_fit_do_not_classify(folder: Path) -> None:
    design_proxies(10, 8, "hclm").save(folder / "proxies.safetensors")
    relist(folder, "proxies.safetensors")
    with pytest.raises(InputError, match="has proxies of 8 bits, which its embeddings do not match"):
        Hasher.load(folder).classify(digits()[:2])
    rewrite(folder, class_names=["a"])
    design_proxies(10, BITS, "hclm").save(folder / "proxies.safetensors")
    relist(folder, "proxies.safetensors")
    with pytest.raises(InputError, match="has more proxies than class names"):
        Hasher.load(folder).classify(digits())


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
