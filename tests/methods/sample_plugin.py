"""Two methods of a user: one that trains a network, one that does not."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from proxyhash.losses import batch_pairs, hamming_distances, masked_mean
from proxyhash.methods import HashingMethod, LinearEncoder, MethodSettings, TrainingData, register_method


@dataclass(frozen=True)
class SpreadSettings(MethodSettings):
    """Settings of `spread`."""

    SEARCH_SPACE = ({"margin": 0.25}, {"margin": 0.5})

    margin: float = 0.5  # as a fraction of the code
    samples_per_class: int = 8


@register_method("spread", title="Spread", year=2026, settings=SpreadSettings)
class Spread(HashingMethod):
    """Similar images at distance 0, dissimilar ones beyond a margin."""

    settings: SpreadSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        bits = embeddings.shape[1]
        distances = hamming_distances(embeddings, embeddings) / bits
        similar, dissimilar = batch_pairs(targets)
        return masked_mean(distances, similar) + masked_mean((self.settings.margin - distances).clamp(min=0), dissimilar)


@register_method("first-features", title="First features", learns_from="nothing")
def fit(data: TrainingData, settings: MethodSettings) -> LinearEncoder:
    """Return the signs of the features of largest variance, around their mean."""
    features = data.load_features()
    chosen = np.argsort(-features.var(0), kind="stable")[: data.bits]
    projection = np.eye(features.shape[1], dtype=np.float32)[:, chosen]
    return LinearEncoder("first-features", features.mean(0), projection, settings=settings)
