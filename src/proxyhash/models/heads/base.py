"""Interface and registry of heads: features to outputs, outputs to codes."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from proxyhash.codes import binarize, pack
from proxyhash.codes.bits import Packed
from proxyhash.utils.legacy_names import upgrade_head_config
from proxyhash.utils.registry import Registry

Floats = NDArray[np.float32]
Queries = Packed | Floats
"""What a query is compared by: packed codes (Q, bytes), or tables (Q, M, k) of asymmetric distances."""


@dataclass(frozen=True)
class HeadConfig:
    """Sizes of a head.

    A hidden layer helps where the features are frozen. A backbone that is fine-tuned adapts its features and needs none.

    Parameters
    ----------
    in_features
        The number of features.
    bits
        The length of the codes.
    hidden_dim
        Units of the hidden layer, 0 for none (the paper's head is one linear layer).
    dropout
        The dropout rate before the last layer.
    out_features
        Outputs of a head that has another number of outputs than bits; None for what the head needs.

    Examples
    --------
    >>> HeadConfig(1280, bits=32, hidden_dim=2048)
    HeadConfig(in_features=1280, bits=32, hidden_dim=2048, dropout=0.0, out_features=None)
    """

    in_features: int
    bits: int
    hidden_dim: int = 0
    dropout: float = 0.0
    out_features: int | None = None


class Head(nn.Module):
    """Module from features (N, in_features) to outputs (N, out_features), which become packed codes of `bits` bits."""

    metric: ClassVar[str] = "hamming"
    """How codes are compared."""
    is_bounded: ClassVar[bool] = False
    """Whether codes are the signs of outputs from -1 to 1, so that outputs have a binarization error."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def out_features(self) -> int:
        """Return the number of outputs."""
        return self.config.bits

    def encode(self, outputs: Floats) -> Packed:
        """Return packed codes (N, ceil(bits / 8)); by default the signs of the outputs."""
        return pack(binarize(outputs))

    def encode_queries(self, outputs: Floats) -> Queries:
        """Return what is compared with the codes of a database; by default codes as well."""
        return self.encode(outputs)


def hidden_layers(config: HeadConfig, hidden_dim: int | None = None) -> tuple[list[nn.Module], int]:
    """Return the layers before the last one of a head, and the number of their outputs."""
    width = config.hidden_dim if hidden_dim is None else hidden_dim
    layers: list[nn.Module] = []
    if width:
        # Batch normalization makes one learning rate fit the features of every backbone.
        layers += [nn.Linear(config.in_features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
    if config.dropout:
        layers.append(nn.Dropout(config.dropout))
    return layers, width or config.in_features


HeadClass = TypeVar("HeadClass", bound=type[Head])

HEADS: Registry[type[Head]] = Registry("head")
DEFAULT_HEAD = "tanh"


def register_head(name: str) -> Callable[[HeadClass], HeadClass]:
    """Register a class of heads by name: files describe a head by its name and sizes, never by code."""

    def register(head: HeadClass) -> HeadClass:
        HEADS.add(name, head)
        return head

    return register


def create_head(description: object) -> Head:
    """Return the head of a description by `describe_head`, its weights not loaded yet."""
    if not isinstance(description, dict):
        raise TypeError(f"a head is described by its kind and its sizes, not by {description!r}")
    sizes = upgrade_head_config(description)
    return HEADS.find(sizes.pop("kind"))(HeadConfig(**sizes))


def describe_head(head: Head) -> dict[str, Any]:
    """Return the kind and the sizes of a head, for files."""
    kind = next(name for name, known in HEADS.items() if known is type(head))
    sizes = {name: size for name, size in asdict(head.config).items() if size is not None}
    return {"kind": kind, **sizes}
