"""A head whose bits count differently."""

import numpy as np
import torch
from torch import Tensor

from proxyhash.codes import binarize
from proxyhash.codes.adc import weighted_hamming_tables
from proxyhash.models.heads.base import Floats, HeadShape
from proxyhash.models.heads.linear import LinearHead
from proxyhash.models.heads.registry import head_kind


@head_kind("weighted")
class WeightedHead(LinearHead):
    """u = L'q + b, signs as codes, searched by sum_k w_k [bits differ], with `weights` w (bits,) that are not negative."""

    metric = "weighted hamming"
    weights: Tensor

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.register_buffer("weights", torch.ones(shape.bits))

    def queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, bits, 2) of the weighted distance."""
        return weighted_hamming_tables(binarize(outputs), self.weights.cpu().numpy().astype(np.float64))
