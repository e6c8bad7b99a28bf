"""Interface, configuration and registry of backbones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from proxyhash.models.storage import MODULE_PREFIX
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator
from proxyhash.utils.registry import Registry, suggest

PerChannel = tuple[float, float, float]
IMAGENET_MEAN: PerChannel = (123.675, 116.28, 103.53)  # 255 * (0.485, 0.456, 0.406), as torchvision subtracts
IMAGENET_STD: PerChannel = (58.395, 57.12, 57.375)
TIMM_PREFIX = "timm/"


@dataclass(frozen=True)
class BackboneConfig:
    """Input and output of a backbone.

    Parameters
    ----------
    name
        The name in the registry.
    image_size
        The side of the images that it was made for.
    mean, std
        The normalization of pixel values from 0 to 255.
    num_features
        The number of features.
    pretrained_on
        The data of its weights, e.g. "ILSVRC-2012"; None for random weights.
    """

    name: str
    image_size: int
    mean: PerChannel
    std: PerChannel
    num_features: int
    pretrained_on: str | None = None


class Backbone(nn.Module, ABC):
    """Feature extractor q(x) below the hash head, with its `config`."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, num_features) of normalized images (N, 3, H, W)."""

    def stages(self) -> list[nn.Module]:
        """Return the modules whose composition is `forward`, from the first to the last.

        They share their submodules and parameters with the backbone, which does not register them. Partial fine-tuning
        freezes the lower ones.

        Raises
        ------
        InputError
            If there is no such sequence of modules, as for this class unless a subclass defines one.
        """
        raise self.cannot_be_cut()

    @property
    def last_stages(self) -> int:
        """Return the number of upper stages that partial fine-tuning trains by default.

        These are the stages from the last one on that has more than biases and normalization.
        """
        upper = enumerate(reversed(self.stages()), 1)
        return next((count for count, stage in upper if any(weight.ndim > 1 for weight in stage.parameters())), 1)

    def cannot_be_cut(self) -> InputError:
        """Return the error of a backbone without stages."""
        name = self.config.name.removeprefix(MODULE_PREFIX)
        return InputError(f"{name} cannot be cut into stages, so only its head or all of it can be trained.")

    def set_bn_momentum(self, momentum: float) -> None:
        """Set the momentum of all running statistics: higher values follow the batches faster."""
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = momentum


def init_weights(network: nn.Module) -> None:
    """Draw weights with the fan-in of He et al. 2015 for ReLU layers; biases start at zero."""
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class BackboneBuilder(Protocol):
    """Function that builds a backbone, with pretrained weights (from the file `weights`, if given) or random ones."""

    def __call__(self, pretrained: bool, weights: Path | None) -> Backbone:
        """Build the backbone."""
        ...


@dataclass(frozen=True)
class _Entry:
    build: BackboneBuilder
    pretraining: str | None


Builder = TypeVar("Builder", bound=BackboneBuilder)
BACKBONES: Registry[_Entry] = Registry("backbone")


def register_backbone(name: str, *, pretraining: str | None = None) -> Callable[[Builder], Builder]:
    """Register a builder by name, with the data that its published weights were trained on, if there are any."""

    def register(build: Builder) -> Builder:
        BACKBONES.add(name, _Entry(build, pretraining))
        return build

    return register


def list_backbones() -> list[str]:
    """Return the names of all backbones; `timm/NAME` adds any model of timm.

    Examples
    --------
    >>> list_backbones()
    ['alexnet', 'convnet', 'efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2']
    """
    return list(BACKBONES)


def pretraining_data(name: str) -> str | None:
    """Return the data that the published weights of a backbone were trained on, or None if it has no weights.

    Examples
    --------
    >>> pretraining_data("efficientnet_lite0")
    'ILSVRC-2012'
    """
    return "timm's default weights" if name.startswith(TIMM_PREFIX) else _find(name).pretraining


def create_backbone(name: str, *, pretrained: bool = True, weights: Path | None = None, seed: int = 0) -> Backbone:
    """Return a backbone by name.

    Parameters
    ----------
    name
        One of `list_backbones()`, or "timm/NAME".
    pretrained
        Use the published weights, from an installed package or from the cache. Without them the weights are random.
    weights
        A file with the published weights.
    seed
        The seed of random weights.

    Raises
    ------
    InputError
        For an unknown name, or weights that are missing or do not fit.

    Examples
    --------
    >>> create_backbone("convnet", pretrained=False).config.num_features
    256
    """
    if weights is not None and not pretrained:
        raise InputError("Weights were given together with pretrained=False; leave one of the two out.")
    build = _timm_builder(name) if name.startswith(TIMM_PREFIX) else _find(name).build
    with _seeded(seed, name):
        return build(pretrained, weights)


def _timm_builder(name: str) -> BackboneBuilder:
    from proxyhash.models.backbones import timm_models

    return timm_models.builder(name.removeprefix(TIMM_PREFIX))


def _find(name: str) -> _Entry:
    if name not in BACKBONES:
        raise InputError(f"There is no backbone {name!r}; {suggest(name, [*BACKBONES, f'{TIMM_PREFIX}NAME'])}")
    return BACKBONES[name]


@contextmanager
def _seeded(seed: int, name: str) -> Iterator[None]:
    """Seed torch's CPU generator, and restore the caller's state afterwards."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the generators of GPUs, which are not restored here.
        torch.default_generator.manual_seed(int(generator(seed, "backbone", name).integers(2**63)))
        yield
