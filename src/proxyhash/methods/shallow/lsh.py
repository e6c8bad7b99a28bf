"""LSH: the signs of random projections (Charikar 2002; Datar et al. 2004), the floor of every comparison."""

from dataclasses import dataclass

import numpy as np

from proxyhash.methods.lesson import Lesson
from proxyhash.methods.registry import method
from proxyhash.methods.shallow.feature_hasher import FeatureHasher
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class LshSettings:
    """Nothing to choose."""


@method("lsh", "LSH", "shallow", 2002, LshSettings, learns_from="nothing")
def fit(lesson: Lesson, settings: LshSettings) -> FeatureHasher:
    """b = sign(W'(q - mean)) with W drawn from N(0, 1)."""
    width = lesson.features.shape[1]
    projection = generator(lesson.seed, "lsh").standard_normal((width, lesson.bits)).astype(np.float32)
    return FeatureHasher("lsh", np.asarray(lesson.features.mean(0), np.float32), projection, settings=settings)
