"""Random rotation of the principal components (PCA-RR of Gong, Lazebnik, Gordo and Perronnin 2013)."""

import numpy as np

from proxyhash.methods.base import MethodSettings, TrainingData
from proxyhash.methods.encoders import LinearEncoder
from proxyhash.methods.pca import principal_directions
from proxyhash.methods.registry import register_method
from proxyhash.proxies.geometry import random_rotation
from proxyhash.utils.random import generator


@register_method("random-rotation", title="Random rotation", family="shallow", year=2011, learns_from="nothing")
def fit(data: TrainingData, settings: MethodSettings) -> LinearEncoder:
    """Rotate the principal components at random, the baseline PCA-RR of Gong et al. 2013.

    b = sign(R'V'(q - mean)) with V (width, bits) the first principal directions and R (bits, bits) a random rotation, which
    spreads the variance evenly over the bits. Nothing but the mean and the covariance is learned.
    """
    mean, directions = principal_directions(data.load_features(), data.bits, "A random rotation")
    rotation = random_rotation(data.bits, generator(data.seed, "random-rotation"))
    projection = (directions @ rotation).astype(np.float32)
    return LinearEncoder("random-rotation", mean.astype(np.float32), projection, settings=settings)
