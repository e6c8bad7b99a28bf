"""LSH: signs of random projections (Charikar 2002; Datar et al. 2004)."""

import numpy as np

from proxyhash.methods.base import MethodSettings, TrainingData
from proxyhash.methods.encoders import LinearEncoder
from proxyhash.methods.registry import register_method
from proxyhash.utils.random import generator


@register_method("lsh", title="LSH", family="shallow", year=2002, learns_from="nothing")
def fit(data: TrainingData, settings: MethodSettings) -> LinearEncoder:
    """Return the signs of random projections, Charikar 2002 and Datar et al. 2004.

    b = sign(W'(q - mean)) with W (width, bits) drawn from N(0, 1). Centering is ours; there was no code to check against.
    """
    features = data.load_features()
    width = features.shape[1]
    projection = generator(data.seed, "lsh").standard_normal((width, data.bits)).astype(np.float32)
    return LinearEncoder("lsh", np.asarray(features.mean(0), np.float32), projection, settings=settings)
