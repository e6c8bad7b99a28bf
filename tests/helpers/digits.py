"""Digits as features: real, small, and the same for every test."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.data import load_dataset, make_split
from proxyhash.evaluation import mean_average_precision
from proxyhash.methods import Encoder


class Digits(NamedTuple):
    """Gray values as features (n, 64), and labels (n,)."""

    train: NDArray[np.float32]
    labels: NDArray[np.int64]
    query: NDArray[np.float32]
    query_labels: NDArray[np.int64]


@cache
def digits() -> Digits:
    data = load_dataset("digits")
    split = make_split(data, validation="none")
    stored = data.images.pixels_in_memory(np.arange(len(data)))
    assert stored is not None
    labels = data.require_classes().values
    features = stored[..., 0].reshape(len(data), -1).astype(np.float32) / np.float32(255)
    return Digits(features[split.train], labels[split.train], features[split.query], labels[split.query])


def retrieval(encoder: Encoder) -> float:
    """Return the mAP of the queries against the images that were learned from."""
    search = encoder.encode_queries(digits().query), digits().query_labels, encoder.encode(digits().train), digits().labels
    return mean_average_precision(*search).value
