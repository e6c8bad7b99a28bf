"""Models of timm, by the names `timm/NAME`."""

import pickle
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from proxyhash.models.backbones.base import TIMM_PREFIX, Backbone, BackboneBuilder, BackboneConfig, PerChannel
from proxyhash.models.backbones.traced_stages import cut_network
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import suggest


class TimmBackbone(Backbone):
    """A model of timm without its classifier."""

    def __init__(self, config: BackboneConfig, model: nn.Module) -> None:
        super().__init__(config)
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, width) of normalized images (N, 3, H, W)."""
        features: Tensor = self.model(images)
        return features

    def stages(self) -> list[nn.Module]:
        """Return timm's feature stages, and what follows them.

        The modes of the stages are set by their own `train` and `eval`, and those of the shared submodules with them.
        Settings of the model outside its submodules, such as `drop_rate`, are those of this moment.
        """
        untraced = _import_timm().models.get_notrace_functions()
        try:
            return cut_network(self, self._feature_stages(), self._sample_images(), untraced=untraced)
        except Exception as error:  # the code of timm may raise anything while it is traced
            raise self.cannot_be_cut() from error

    @property
    def last_stages(self) -> int:
        """Return 2: the last feature stage, and what follows it."""
        return min(2, len(self._feature_stages()))

    def _feature_stages(self) -> list[str]:
        """Return the names of the submodules whose outputs timm returns as features."""
        return [f"model.{stage['module']}" for stage in getattr(self.model, "feature_info", [])]

    def _sample_images(self) -> Tensor:
        """Return two images of noise."""
        size = self.config.image_size
        images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
        return images.to(next(self.parameters()))


def builder(name: str) -> BackboneBuilder:
    """Return what builds timm's model `name`, e.g. "resnet18" or "resnet18.a1_in1k"."""
    timm = _import_timm()
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}; {_advice(name, timm.list_models())}")

    def build(pretrained: bool, weights: Path | None) -> TimmBackbone:
        model = _pretrained(timm, name, weights) if pretrained else timm.create_model(name, num_classes=0)
        tag = model.pretrained_cfg.get("tag") or ""
        return TimmBackbone(_config(name, model, pretraining(tag, weights) if pretrained else None), model)

    return build


def _advice(name: str, known: list[str]) -> str:
    """Suggest a close name; timm has too many models to list them all in an error."""
    return suggest(name, known) if get_close_matches(name, known, n=1) else "timm.list_models() lists them all."


def _pretrained(timm: ModuleType, name: str, weights: Path | None) -> Any:
    """Load the model with its classifier, which is then dropped: timm loads strictly only what is whole."""
    overlay = {"file": str(weights)} if weights else None
    try:
        model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        if weights:
            raise InputError(f"{weights} does not hold the weights of timm's {name}; give its own file.") from error
        raise InputError(f"timm cannot fetch weights for {name}; give their file (weights=PATH).") from error
    model.reset_classifier(0)
    return model


def _config(name: str, model: Any, pretrained_on: str | None) -> BackboneConfig:
    config = model.pretrained_cfg
    return BackboneConfig(
        name=f"{TIMM_PREFIX}{name}",
        image_size=config["input_size"][-1],
        mean=_bytes(config["mean"]),
        std=_bytes(config["std"]),
        num_features=getattr(model, "head_hidden_size", None) or model.num_features,
        pretrained_on=pretrained_on,
    )


def _bytes(fractions: PerChannel) -> PerChannel:
    red, green, blue = (255 * fraction for fraction in fractions)
    return red, green, blue


def pretraining(tag: str, weights: Path | None = None) -> str:
    """Read the data from timm's tag of the weights: "a1_in1k" is ImageNet alone, "in21k_ft_in1k" saw more before."""
    if weights:
        return f"the file {weights.name}"  # no checksum says what that file is
    return "ILSVRC-2012" if tag.endswith("in1k") and "_ft_" not in tag else f"timm's {tag or 'default weights'}"


def _import_timm() -> ModuleType:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise InputError('Models of timm need timm; run pip install "proxyhash[timm]".') from error
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _declare_torchvision_operators()
        import timm
    return timm  # type: ignore[no-any-return]


def _declare_torchvision_operators() -> None:
    """Declare what torchvision's Python half expects of its compiled half.

    A torchvision built for CUDA cannot load its compiled half beside torch for CPUs, and then fails to import over two
    operators of object detection. timm needs neither; their signatures are enough.
    """
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
