"""CNNH: codes that reproduce similarities, predicted by a network (Xia, Pan, Lai, Liu and Yan 2014)."""

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
    """Settings of CNNH."""

    sweeps: int = 10


@register_method("cnnh", title="CNNH", family="pairwise", year=2014, settings=CnnhSettings, learns_from="classes")
class Cnnh(HashCenters):
    """Convolutional neural network hashing, Xia et al. 2014.

    The loss is the mean of ||nu - h||^2, with nu (N, K) the embeddings and h (N, K) the codes of their classes, found
    before training by coordinate descent on ||S - H H' / K||^2.

    S = +1 within a class and -1 across, so that the images of a class share a code (ours): the problem has the size of
    the classes, each weighted by its images. The authors relax entries to [-1, 1]; ours are signs throughout. CNNH+,
    whose network predicts the classes too, is not included. No code of the authors was found to check against.
    """

    def __init__(self, data: TrainingData, settings: CnnhSettings) -> None:
        found = label_sets(data.require_labels().one_hot())
        start = random_signs((len(found.rows), data.bits), generator(data.seed, "cnnh")).astype(np.float64)
        codes = np.ones((data.num_classes, data.bits), np.float32)
        weights = found.counts.astype(np.float64)
        codes[found.rows.argmax(1)] = similarity_codes(start, found.similarity(), weights, settings.sweeps)
        super().__init__(data, settings, codes)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return (embeddings - self.target_codes(targets)).square().mean()


def similarity_codes(codes: Doubles, similarity: Doubles, counts: Doubles, sweeps: int) -> Doubles:
    """Lower sum n_c n_d (S_cd - h_c.h_d / K)^2 over codes h (U, bits) of +1 and -1, bit by bit; no step raises it."""
    codes, bits = codes.copy(), codes.shape[1]
    for _ in range(sweeps):
        before = codes.copy()
        for bit in range(bits):
            rest = np.delete(codes, bit, axis=1)
            codes[:, bit] = improve_bit(codes[:, bit], bits * similarity - rest @ rest.T, counts, 1)
        if (codes == before).all():
            break
    return codes
