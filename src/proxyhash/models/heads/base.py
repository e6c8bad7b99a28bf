"""Base class of heads: features to outputs, and outputs to codes and queries."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from proxyhash.codes import binarize, pack
from proxyhash.codes.bits import Packed

Floats = NDArray[np.float32]
Queries = Packed | Floats
"""Queries: packed codes (Q, bytes), or distance tables (Q, M, k), see `codes.adc`."""


@dataclass(frozen=True)
class HeadShape:
    """Layers between features and codes.

    A hidden layer lets frozen features reach corners that no linear map of them reaches; a network that is trained end to
    end bends its own features and needs none.
    """

    width: int
    bits: int
    hidden: int = 0  # 0: the paper's head, one linear layer
    dropout: float = 0.0  # before the last layer
    outputs: int = 0  # of a head whose outputs are not its bits: how many; 0: what the head needs


class Head(nn.Module):
    """Features (N, width) to outputs (N, outputs); these to packed codes of `bits` bits, and to what a query is."""

    metric: ClassVar[str] = "hamming"  # how codes are compared

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape

    @property
    def outputs(self) -> int:
        """Return the number of its outputs."""
        return self.shape.bits

    def codes(self, outputs: Floats) -> Packed:
        """Return packed codes (N, ceil(bits / 8)); by default the signs of the outputs."""
        return pack(binarize(outputs))

    def queries(self, outputs: Floats) -> Queries:
        """Return what is compared with the codes of a database; by default codes as well."""
        return self.codes(outputs)


def layers_before(shape: HeadShape, hidden: int | None = None) -> tuple[list[nn.Module], int]:
    """Return the layers that come before a head's last one, and their width."""
    width = shape.hidden if hidden is None else hidden
    layers: list[nn.Module] = []
    if width:
        # Batch normalization makes one learning rate fit the features of every backbone.
        layers += [nn.Linear(shape.width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
    if shape.dropout:
        layers.append(nn.Dropout(shape.dropout))
    return layers, width or shape.width
