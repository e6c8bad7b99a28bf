"""A head whose bits count differently."""

import numpy as np
import torch
from torch import Tensor

from proxyhash.codes import signs
from proxyhash.codes.tables import bit_tables
from proxyhash.models.heads.base import Floats, HeadConfig
from proxyhash.models.heads.linear import LinearHead
from proxyhash.models.heads.registry import register_head


@register_head("weighted")
class WeightedHead(LinearHead):
    """u = L'q + b, signs as codes, searched by sum_k w_k [bits differ], with `weights` w (bits,) that are not negative."""

    metric = "weighted hamming"
    weights: Tensor

    def __init__(self, shape: HeadConfig) -> None:
        super().__init__(shape)
        self.register_buffer("weights", torch.ones(shape.bits))

    def queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, bits, 2) of the weighted distance."""
        return bit_tables(signs(outputs), self.weights.cpu().numpy().astype(np.float64))
