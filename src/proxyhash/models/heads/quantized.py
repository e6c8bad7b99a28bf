"""Heads whose outputs are real vectors, stored by a product quantizer and searched by the asymmetric distance."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from proxyhash.codes.adc import pack_subcodes, subcode_bits
from proxyhash.codes.bits import Packed
from proxyhash.codes.pq import distance_tables, learn_codebooks, quantize, reconstruct
from proxyhash.models.heads.base import Floats, Head, HeadShape, layers_before
from proxyhash.models.heads.registry import head_kind
from proxyhash.utils.random import generator


class QuantisedHead(Head):
    """z (N, outputs) in M parts, each coded by the nearest of k centroids; a query z is compared by ||z - centroids||^2.

    `codebooks` (M, k, d) are learned from the training images after each epoch, by whoever trains the head.
    """

    metric = "product quantizer"
    codebooks: Tensor

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.each = subcode_bits(shape.bits)
        parts = shape.bits // self.each
        layers, width = layers_before(shape)
        self.layers = nn.Sequential(*layers, nn.Linear(width, self.outputs))
        self.register_buffer("codebooks", torch.zeros(parts, 2**self.each, -(-self.outputs // parts)))

    @property
    def outputs(self) -> int:
        """Return the width of z."""
        return self.shape.outputs or self.shape.bits

    def learn_codebooks(self, outputs: Floats) -> None:
        """Fit the codebooks to z (n, outputs), from where they are."""
        found = learn_codebooks(outputs, self._books(), generator(0, "codebooks"))
        self.codebooks.copy_(torch.from_numpy(found))

    def codes(self, outputs: Floats) -> Packed:
        """Return the nearest centroids as symbols."""
        return pack_subcodes(quantize(outputs, self._books()), self.each)

    def queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, M, k) of squared distances."""
        return distance_tables(outputs, self._books())

    def quantised(self, outputs: Floats) -> Floats:
        """Return what the codes of z stand for (n, outputs)."""
        return reconstruct(quantize(outputs, self._books()), self._books(), self.outputs)

    def _books(self) -> Floats:
        return self.codebooks.cpu().numpy().astype(np.float32)


@head_kind("softmax-quantised")
class SoftmaxQuantisedHead(QuantisedHead):
    """z is a softmax: the chances of the classes."""

    def forward(self, features: Tensor) -> Tensor:
        """Return z (N, outputs)."""
        logits: Tensor = self.layers(features)
        return logits.softmax(1)


@head_kind("unit-quantised")
class UnitQuantisedHead(QuantisedHead):
    """z has length 1, so that squared distances are those of cosines."""

    def forward(self, features: Tensor) -> Tensor:
        """Return z (N, outputs)."""
        return normalize(self.layers(features))
