"""Heads whose codes are searched by tables of asymmetric distances."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from proxyhash.codes.adc import pack_subcodes, subcode_bits
from proxyhash.codes.bits import Packed
from proxyhash.codes.pq import distance_tables, learn_codebooks, quantize, reconstruct
from proxyhash.models.heads.base import Floats, Head, HeadConfig, hidden_layers, register_head
from proxyhash.utils.random import generator


class QuantizedHead(Head):
    """Product quantizer: z (N, out_features) in M parts, each encoded by the nearest of k centroids.

    A query z is compared by ||z - centroids||^2. `codebooks` (M, k, d) are learned from the training images after each
    epoch.
    """

    metric = "product quantizer"
    codebooks: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.subcode_bits = subcode_bits(config.bits)
        parts = config.bits // self.subcode_bits
        layers, width = hidden_layers(config)
        self.layers = nn.Sequential(*layers, nn.Linear(width, self.out_features))
        self.register_buffer("codebooks", torch.zeros(parts, 2**self.subcode_bits, -(-self.out_features // parts)))

    @property
    def out_features(self) -> int:
        """Return the width of z, by default the number of bits."""
        return self.config.out_features or self.config.bits

    def learn_codebooks(self, outputs: Floats) -> None:
        """Fit the codebooks to z (n, out_features), starting from the present ones."""
        found = learn_codebooks(outputs, self._codebooks(), generator(0, "codebooks"))
        self.codebooks.copy_(torch.from_numpy(found))

    def encode(self, outputs: Floats) -> Packed:
        """Return the nearest centroids as packed subcodes."""
        return pack_subcodes(quantize(outputs, self._codebooks()), self.subcode_bits)

    def encode_queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, M, k) of squared distances."""
        return distance_tables(outputs, self._codebooks())

    def quantized(self, outputs: Floats) -> Floats:
        """Return the reconstruction of z from its codes (n, out_features)."""
        return reconstruct(quantize(outputs, self._codebooks()), self._codebooks(), self.out_features)

    def _codebooks(self) -> Floats:
        return self.codebooks.cpu().numpy().astype(np.float32)


@register_head("softmax-quantized")
class SoftmaxQuantizedHead(QuantizedHead):
    """Product quantizer of z = softmax(logits), the class probabilities."""

    def forward(self, features: Tensor) -> Tensor:
        """Return z (N, out_features)."""
        logits: Tensor = self.layers(features)
        return logits.softmax(1)


@register_head("unit-quantized")
class UnitQuantizedHead(QuantizedHead):
    """Product quantizer of z with length 1, so that squared distances rank like cosines."""

    def forward(self, features: Tensor) -> Tensor:
        """Return z (N, out_features)."""
        return normalize(self.layers(features))


@register_head("blocks")
class BlockHead(Head):
    """The head of SUBIC (Jain, Zepeda, Perez and Gribonval 2017): M softmaxes over k values each.

    M log2(k) = bits, and k = 256 where 8 divides the bits. The code of an image is the largest value of each block. A query
    keeps its real values p, and scores sum_m p[m, code_m].
    """

    metric = "one-hot blocks"

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.subcode_bits: int = subcode_bits(config.bits)
        layers, width = hidden_layers(config)
        self.layers = nn.Sequential(*layers, nn.Linear(width, self.out_features))

    @property
    def out_features(self) -> int:
        """Return M k."""
        return self.config.bits // self.subcode_bits << self.subcode_bits

    def forward(self, features: Tensor) -> Tensor:
        """Return the softmaxes of the blocks side by side (N, M k)."""
        blocks: Tensor = self.layers(features).unflatten(1, (-1, 1 << self.subcode_bits)).softmax(2)
        return blocks.flatten(1)

    def encode(self, outputs: Floats) -> Packed:
        """Return the largest entries of the blocks as packed subcodes."""
        return pack_subcodes(self._blocks(outputs).argmax(2), self.subcode_bits)

    def encode_queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, M, k) of the negative scores."""
        return -self._blocks(outputs)

    def _blocks(self, outputs: Floats) -> Floats:
        return outputs.reshape(len(outputs), self.config.bits // self.subcode_bits, 1 << self.subcode_bits)
