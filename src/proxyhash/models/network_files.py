"""Networks of model folders: their description in config.json, and their weights."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from proxyhash.models.backbones import Backbone, BackboneConfig, create_backbone
from proxyhash.models.backbones.wrapped import (
    MissingBackbone,
    ModuleLike,
    WrappedBackbone,
    class_name,
    how_to_pass,
    restore_backbone,
)
from proxyhash.models.heads import create_head
from proxyhash.models.network import HashNetwork
from proxyhash.models.onnx_backend import is_onnxruntime_available
from proxyhash.models.probe import are_close, probe_pixels, read_probe
from proxyhash.models.storage import (
    BACKBONE_CONFIG,
    CONFIG,
    MAX_IMAGE_SIZE,
    MODULE_PREFIX,
    ONNX,
    PROBE,
    WEIGHTS,
    image_size,
)
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.config import check_table, from_mapping
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


def read_network(config: dict[str, Any], folder: Path, given: ModuleLike | None) -> HashNetwork:
    """Return the network with its weights; a head that the weights cannot fill is refused before memory is allocated."""
    if not isinstance(config["backbone"], str):
        raise InputError(f"{folder / CONFIG}: backbone must be a name.")
    weights = load_file(folder / WEIGHTS)
    with torch.device("meta"):
        needed = sum(tensor.numel() for tensor in create_head(config["head"]).state_dict().values())
    if needed > sum(tensor.numel() for tensor in weights.values()):
        raise InputError(f"{folder / CONFIG} describes a larger head than {WEIGHTS} holds.")
    network = HashNetwork(_read_backbone(config, folder, given), create_head(config["head"]))
    check_tensors(weights, network.state_dict(), folder / WEIGHTS)
    backbone = network.features.backbone
    if isinstance(backbone, MissingBackbone):
        weights = {name: tensor for name, tensor in weights.items() if name.startswith("head.")}
    if isinstance(backbone, WrappedBackbone):
        _load_wrapped(network.eval(), weights, folder, image_size(config, folder))
    else:
        network.load_state_dict(weights)
    return network.eval()


def backbone_settings(backbone: Backbone) -> dict[str, Any]:
    """Return the name of a backbone and, for a network of the user, its input and its number of features."""
    name, config = backbone.config.name, backbone.config
    if not isinstance(backbone, WrappedBackbone):
        return {"backbone": name}
    fields = ("image_size", "mean", "std", "num_features")
    return {"backbone": name, BACKBONE_CONFIG: {field: getattr(config, field) for field in fields}}


def _read_backbone(config: dict[str, Any], folder: Path, given: ModuleLike | None) -> Backbone:
    name = config["backbone"]
    if not name.startswith(MODULE_PREFIX):
        if given is not None:
            raise InputError(f"{folder} has the backbone {name}, which is known by its name; leave backbone= out.")
        return create_backbone(name, pretrained=False)
    settings = config[BACKBONE_CONFIG]
    check_table(f"{folder / CONFIG}: {BACKBONE_CONFIG}", settings)
    described = from_mapping(BackboneConfig, {**settings, "name": name}, owner=f"{folder / CONFIG}: {BACKBONE_CONFIG}")
    check_int(f"{folder / CONFIG}: image_size", described.image_size, 1, MAX_IMAGE_SIZE)
    if given is not None:
        return restore_backbone(given, described)
    if (folder / ONNX).is_file() and is_onnxruntime_available():
        return MissingBackbone(described)
    raise InputError(f"{folder} has a network of your own, {class_name(described)}; pass it: {how_to_pass(described)}.")


def _load_wrapped(network: HashNetwork, weights: dict[str, torch.Tensor], folder: Path, size: int) -> None:
    """Load the weights into a network of the user, and check that it gives the outputs of the one that was saved."""
    backbone = network.features.backbone
    assert isinstance(backbone, WrappedBackbone)
    name = type(backbone.module).__name__
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split()).replace("features.backbone.module.", "")[:200].rstrip(".")
        raise InputError(f"{name} does not fit the weights in {folder}, pass it as it was trained: {reason}.") from error
    if (folder / PROBE).is_file():
        outputs = TorchBackend(network)(probe_pixels(size))
        if not are_close(outputs, read_probe(folder / PROBE)):
            raise InputError(f"{name} gives other outputs than the network in {folder}; pass it as it was trained.")


def check_tensors(weights: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], path: Path) -> None:
    """Raise for numbers that `load_state_dict` would take over: of another type, infinite or NaN."""
    for name, tensor in weights.items():
        if name in expected and tensor.is_floating_point() != expected[name].is_floating_point():
            raise InputError(f"{path} is not a network of this model: {name} has the type {tensor.dtype}.")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InputError(f"{path} holds numbers that are not finite, in {name}; train the model again.")
