"""The head of SUBIC (Jain, Zepeda, Perez and Gribonval 2017): blocks of softmax, one-hot in the database."""

from torch import Tensor, nn

from proxyhash.codes.adc import pack_subcodes, subcode_bits
from proxyhash.codes.bits import Packed
from proxyhash.models.heads.base import Floats, Head, HeadShape, layers_before
from proxyhash.models.heads.registry import head_kind


@head_kind("blocks")
class BlockHead(Head):
    """M softmaxes over k values each, M log2(k) = bits and k = 256 where 8 divides the bits.

    An image in the database is the largest of each block; a query keeps its real values p, and scores sum_m p[m, symbol_m].
    """

    metric = "one-hot blocks"

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.each: int = subcode_bits(shape.bits)
        layers, width = layers_before(shape)
        self.layers = nn.Sequential(*layers, nn.Linear(width, self.outputs))

    @property
    def outputs(self) -> int:
        """Return M k."""
        return self.shape.bits // self.each << self.each

    def forward(self, features: Tensor) -> Tensor:
        """Return the blocks' softmaxes side by side (N, M k)."""
        blocks: Tensor = self.layers(features).unflatten(1, (-1, 1 << self.each)).softmax(2)
        return blocks.flatten(1)

    def codes(self, outputs: Floats) -> Packed:
        """Return the largest entries of the blocks as symbols."""
        return pack_subcodes(self._blocks(outputs).argmax(2), self.each)

    def queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, M, k): the more of a value a query has, the nearer it is."""
        return -self._blocks(outputs)

    def _blocks(self, outputs: Floats) -> Floats:
        return outputs.reshape(len(outputs), self.shape.bits // self.each, 1 << self.each)
