"""CNNH: codes whose products are the similarities, then a network that predicts them (Xia, Pan, Lai, Liu and Yan 2014)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.base import MethodSettings, TrainingData
from proxyhash.methods.centers import HashCenters, random_signs
from proxyhash.methods.coordinate_descent import improve_bit
from proxyhash.methods.label_sets import label_sets
from proxyhash.methods.registry import register_method
from proxyhash.utils.random import generator

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class CnnhSettings(MethodSettings):
    """How often coordinate descent passes over all bits of all codes, at most."""

    sweeps: int = 10


@register_method("cnnh", title="CNNH", family="pairwise", year=2014, settings=CnnhSettings, learns_from="classes")
class Cnnh(HashCenters):
    """||nu - h||^2, h the code of the image's class from the first stage: min ||S - H H' / K||^2 by coordinate descent.

    S = +1 within a class and -1 across, so that images of a class get one code (ours): the problem is as large as the
    classes, each weighing as many as it has images. The authors relax entries to [-1, 1]; ours are signs throughout. CNNH+,
    which adds the classes to what the network predicts, is not here.
    """

    def __init__(self, data: TrainingData, settings: CnnhSettings) -> None:
        found = label_sets(data.known_labels().one_hot())
        start = random_signs((len(found.rows), data.bits), generator(data.seed, "cnnh")).astype(np.float64)
        codes = np.ones((data.num_classes, data.bits), np.float32)
        weights = found.counts.astype(np.float64)
        codes[found.rows.argmax(1)] = similarity_codes(start, found.similarity(), weights, settings.sweeps)
        super().__init__(data, settings, codes)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return (embeddings - self.target_codes(targets)).square().mean()


def similarity_codes(codes: Doubles, similarity: Doubles, counts: Doubles, sweeps: int) -> Doubles:
    """Return codes (U, bits) of +1 and -1 that lower sum n_c n_d (S_cd - h_c.h_d / K)^2, bit by bit; no step raises it."""
    codes, bits = codes.copy(), codes.shape[1]
    for _ in range(sweeps):
        before = codes.copy()
        for bit in range(bits):
            rest = np.delete(codes, bit, axis=1)
            codes[:, bit] = improve_bit(codes[:, bit], bits * similarity - rest @ rest.T, counts, 1)
        if (codes == before).all():
            break
    return codes
