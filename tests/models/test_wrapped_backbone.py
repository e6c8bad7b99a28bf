"""Networks of the user as backbones: wrapped, trained, saved, loaded again, and exported."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.models import rewrite_json
from proxyhash import Hasher, Index, InputError, ProxyhashWarning, wrap_backbone
from proxyhash.cli.app import main
from proxyhash.data import Dataset, load_dataset, make_split
from proxyhash.evaluation import evaluate_hasher
from proxyhash.models import extraction, hasher
from proxyhash.models.backbones import Backbone
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.storage import fingerprint
from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.training.inputs import resolve_transform
from proxyhash.training.train import train_hashers

SIZE = 8
HALF = (0.5, 0.5, 0.5)


class SmallNet(nn.Module):
    """Two convolutions; feature maps are pooled by the backbone. `slope` is in no weight and not printed."""

    def __init__(self, width: int = 24, slope: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, width, 3))
        self.slope = slope

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.layers(images), self.slope)


class FixedSize(nn.Module):
    """A network that takes one size only."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * size * size, 16)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.linear(images.flatten(1))
        return features


class TwoOutputs(SmallNet):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(images), images


class Tied(SmallNet):
    def __init__(self) -> None:
        super().__init__()
        self.again = self.layers[3]


@pytest.fixture(autouse=True)
def _torch_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the export for features; models are exported where the test is about it."""
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: False)


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hasher, "is_onnx_available", lambda: False)


def digits(count: int = 300) -> Dataset:
    return load_dataset("digits").subset(np.arange(count))


def wrapped(module: nn.Module | None = None) -> Backbone:
    torch.manual_seed(0)
    return wrap_backbone(module or SmallNet(), image_size=SIZE, mean=HALF, std=HALF)


def train(
    backbone: Backbone, *, finetune: bool = False, epochs: int = 2, run_dir: Path | None = None, **options: Any
) -> Hasher:
    optim = {"epochs": epochs, "batch_size": 32, "hidden_dim": 16 * (not finetune)}
    preset = OptimConfig.finetune if finetune else OptimConfig.frozen
    config = TrainConfig(bits=(8,), finetune=finetune, optim=preset(**optim), device="cpu")
    (trained,) = train_hashers(digits(), make_split(digits()), config, run_dir, backbone_module=backbone, **options)
    return trained


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def pixels(count: int = 4) -> Any:
    return digits().images.pixels_in_memory(np.arange(count))


@pytest.mark.parametrize(
    ("module", "features"),
    [(SmallNet(24), 24), (FixedSize(SIZE), 16), (nn.Flatten(), 3 * SIZE * SIZE), (nn.LazyConv2d(5, 3), 5)],
    ids=["maps", "vectors", "without weights", "lazy"],
)
def test_features_are_counted_and_pooled(module: nn.Module, features: int) -> None:
    backbone = wrapped(module)
    assert backbone.config.num_features == features
    images = torch.rand(3, 3, SIZE, SIZE)
    found, output = backbone.eval()(images), module.eval()(images)
    torch.testing.assert_close(found, output if output.ndim == 2 else output.flatten(2).mean(2))


def test_normalization_is_that_of_torchvision() -> None:
    assert wrap_backbone(SmallNet(), image_size=SIZE).config.mean == pytest.approx((123.675, 116.28, 103.53))
    config = wrapped().config
    assert (config.mean, config.std, config.name) == ((127.5,) * 3, (127.5,) * 3, "module/SmallNet")


def test_wrapping_changes_neither_modes_nor_statistics() -> None:
    module = SmallNet().train()
    module.layers[1].eval()
    before = weights(module)
    wrapped(module)
    assert (module.training, module.layers[1].training, module.layers[0].training) == (True, False, True)
    for name, tensor in weights(module).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrap_backbone(SmallNet, image_size=8), "an instance of nn.Module, not the class SmallNet"),  # type: ignore[arg-type]
        (lambda: wrapped(TwoOutputs()), "TwoOutputs gives a tuple, and a backbone gives one tensor"),
        (lambda: wrapped(nn.Flatten(0)), r"Flatten gives \(192\) for one image"),
        (lambda: wrapped(nn.Conv2d(1, 4, 3)), r"Conv2d cannot take an image \(1, 3, 8, 8\): .*to have 1 channels"),
        (lambda: wrap_backbone(SmallNet(), image_size=8, num_features=99), "SmallNet gives 24 features, not 99"),
        (lambda: wrap_backbone(SmallNet(), image_size=0), "image_size must be"),
        (lambda: wrap_backbone(SmallNet(), image_size=8, mean=(127, 127, 127)), "not 127; divide it by 255"),
        (lambda: wrap_backbone(SmallNet(), image_size=8, std=(0, 1, 1)), "std must be above 0 and at most 1"),
        (lambda: wrap_backbone(SmallNet(), image_size=8, mean=(0.5,)), "mean must have three numbers"),
    ],
)
def test_what_is_no_backbone_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        make()
    assert str(refused.value).count(". ") == 0


@pytest.mark.usefixtures("no_onnx")
@pytest.mark.parametrize("finetune", [False, True])
def test_it_trains_saves_and_loads_and_the_module_stays(finetune: bool, tmp_path: Path) -> None:
    module = SmallNet()
    backbone, before = wrapped(module), weights(module)
    trained = train(backbone, finetune=finetune, epochs=12)
    for name, tensor in weights(module).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    changed = any(not torch.equal(weights(trained.backbone)[f"module.{name}"], tensor) for name, tensor in before.items())
    assert changed == finetune
    assert evaluate_hasher(trained, digits(), make_split(digits())).map > 0.2  # 0.1 by chance
    codes = trained.encode(pixels())
    trained.save(tmp_path / "model")
    assert 'Hasher.load("FOLDER", backbone=SmallNet(...))' in (tmp_path / "model" / "README.md").read_text()
    fresh = SmallNet()
    for given in (fresh, SmallNet, lambda: SmallNet(24), wrap_backbone(SmallNet(), image_size=16)):
        loaded = Hasher.load(tmp_path / "model", backbone=given)
        np.testing.assert_array_equal(loaded.encode(pixels()), codes)
        assert loaded.backbone.config == backbone.config
    assert loaded.metadata["config"]["backbone"] == "module/SmallNet"
    assert not torch.equal(
        weights(fresh)["layers.0.weight"], loaded.backbone.state_dict()["module.layers.0.weight"]
    )  # a copy was filled


@pytest.mark.usefixtures("no_onnx")
def test_loading_needs_the_same_network(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    train(wrapped()).save(folder)
    mistakes: dict[str, Any] = {
        r"has a network of your own, SmallNet; pass it: Hasher.load\(..., backbone=SmallNet\(...\)\).$": None,
        "SmallNet gives 23 features, and the model has 24": SmallNet(23),
        "SmallNet gives other outputs than the network in": SmallNet(slope=0.5),
        r"Tied does not fit the weights in .*: .*Missing key\(s\)": Tied(),
        r"backbone must be the network, as in .*, not a int": lambda: 3,
    }
    for message, given in mistakes.items():
        with pytest.raises(InputError, match=message):
            Hasher.load(folder, backbone=given)
    named = Path(shutil.copytree(folder, tmp_path / "named"))
    named.joinpath("probe.safetensors").unlink()  # a copy without the probe is not checked, but loads
    assert Hasher.load(named, backbone=SmallNet()).bits == 8


@pytest.mark.usefixtures("no_onnx")
def test_a_changed_description_of_the_network_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    train(wrapped()).save(folder)
    content = json.loads((folder / "config.json").read_text())
    described = content["backbone_config"]
    changes: dict[str, Any] = {
        "backbone_config must be a table": 3,
        "Expected `float`, got `str`": described | {"mean": ["a", 1, 1]},
        "has no setting 'code'": described | {"code": "import os"},
        "image_size must be": described | {"image_size": 10**9},
        "SmallNet gives 24 features, and the model has 25": described | {"num_features": 25},
        "gives other outputs than the network": described | {"std": [1, 1, 1]},
    }
    for message, change in changes.items():
        rewrite_json(folder / "config.json", backbone_config=change)
        with pytest.raises(InputError, match=message):
            Hasher.load(folder, backbone=SmallNet())


def test_a_named_backbone_takes_no_module(model: Path) -> None:
    with pytest.raises(InputError, match="has the backbone convnet, which is known by its name; leave backbone= out"):
        Hasher.load(model, backbone=SmallNet())


@pytest.mark.usefixtures("no_onnx")
def test_the_normalization_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    trained = train(wrapped())
    trained.save(tmp_path / "one")
    other = WrappedBackbone(wrap_backbone(SmallNet(), image_size=SIZE).config, trained.backbone.module)  # type: ignore[arg-type]
    trained.network.features.backbone = other
    trained.save(tmp_path / "two")
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "two")
    trained.save(tmp_path / "three")
    assert fingerprint(tmp_path / "three") == fingerprint(tmp_path / "two")


@pytest.mark.usefixtures("no_onnx")
def test_tied_weights_are_saved(tmp_path: Path) -> None:
    trained = train(wrapped(Tied()))
    trained.save(tmp_path / "model")
    loaded = Hasher.load(tmp_path / "model", backbone=Tied)
    np.testing.assert_array_equal(loaded.encode(pixels()), trained.encode(pixels()))


def test_the_onnx_file_encodes_without_the_class(tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    trained = train(wrapped())
    trained.save(folder)
    loaded = Hasher.load(folder)
    np.testing.assert_allclose(loaded.embed(pixels()), trained.embed(pixels()), atol=1e-5)
    report = evaluate_hasher(loaded, digits(), make_split(digits()))
    assert report.map == pytest.approx(evaluate_hasher(trained, digits(), make_split(digits())).map, abs=1e-3)
    with Index.open(tmp_path / "index", model=loaded) as index:
        index.add(pixels(), keys=list("abcd"))
        assert index.search(pixels()[:1], k=1)[0].matches[0].key == "a"
    main(f"index add {photos} --model {folder} --index {tmp_path}/photos.index".split())
    assert "holds 12 items" in capsys.readouterr().out
    for work in (lambda: loaded.features(pixels()), lambda: loaded.save(tmp_path / "copy")):
        with pytest.raises(
            InputError, match=r"needs the network SmallNet; load the model with Hasher.load\(\.\.\., backbone"
        ):
            work()
    assert not (tmp_path / "copy").exists()
    with pytest.raises(SystemExit):
        main(f"export {folder} -o {tmp_path}/again.onnx".split())
    assert "needs the network SmallNet" in capsys.readouterr().err
    (folder / "model.onnx").unlink()
    with pytest.raises(InputError, match="pass it"):
        Hasher.load(folder)


def test_features_are_cached_by_weights_structure_and_outputs(tmp_path: Path) -> None:
    computed: list[str] = []

    def features(module: nn.Module, **options: Any) -> Any:
        backbone = wrap_backbone(module, image_size=SIZE, **options).eval()
        transform = resolve_transform(digits(), backbone)
        computed.clear()
        return cached_features(
            digits(), backbone, transform, folder=tmp_path, progress=lambda work, _: computed.append(work)
        ).values

    torch.manual_seed(0)
    module = SmallNet()
    first = np.array(features(module))
    assert computed
    np.testing.assert_array_equal(features(module), first)
    assert not computed
    sloped = SmallNet(slope=0.5)  # the same weights and the same printed structure, other outputs
    sloped.load_state_dict(module.state_dict())
    assert str(sloped) == str(module)
    assert np.abs(features(sloped) - first).max() > 0.01
    assert computed
    features(module, mean=HALF)  # another normalization
    assert computed
    with torch.no_grad():
        next(module.parameters()).add_(0.1)
    features(module)
    assert computed


def test_a_network_of_one_size_is_trained_at_this_size() -> None:
    backbone = wrap_backbone(FixedSize(128), image_size=128)
    with pytest.warns(ProxyhashWarning, match="FixedSize takes no images of 64 pixels, so progressive_resize is 1 instead"):
        trained = train(backbone, finetune=True)
    assert trained.metadata["config"]["optim"]["progressive_resize"] == 1
    config = TrainConfig(bits=(8,), image_size=64, device="cpu")
    with pytest.raises(InputError, match="FixedSize takes no images of 64 pixels"):
        train_hashers(digits(), make_split(digits()), config, backbone_module=backbone)


def test_a_run_resumes_with_the_same_weights_only(tmp_path: Path) -> None:
    backbone = wrapped()
    first = train(backbone, run_dir=tmp_path)
    again = train(backbone, run_dir=tmp_path, resume=True)
    np.testing.assert_array_equal(first.embed(pixels()), again.embed(pixels()))
    with pytest.raises(InputError, match="was started with backbone_weights = "):
        train(wrap_backbone(SmallNet(), image_size=SIZE, mean=HALF, std=HALF), run_dir=tmp_path, resume=True)


def test_a_plain_module_is_answered_with_how_to_wrap_it() -> None:
    with pytest.raises(InputError, match=r"wrap_backbone\(module, image_size=...\)"):
        train(SmallNet())  # type: ignore[arg-type]


def test_what_onnx_cannot_hold_is_saved_with_a_warning(tmp_path: Path) -> None:
    class Undecided(SmallNet):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * (2 if float(images.sum()) > 0 else 1)

    trained = train(wrapped(Undecided()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(ProxyhashWarning, match="saved without its ONNX file"):
            trained.save(tmp_path / "model")
    assert Hasher.load(tmp_path / "model", backbone=Undecided).bits == 8
