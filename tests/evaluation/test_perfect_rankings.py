"""What published protocols make of a perfect ranking."""

import numpy as np
import pytest

from helpers.datasets import labeled_dataset
from proxyhash import codes
from proxyhash.data import Dataset, get_protocol, list_protocols, make_split
from proxyhash.data.images import ArrayImages
from proxyhash.evaluation import EncodedSplit, evaluate_hasher
from proxyhash.labels import TagLabels

CODES = np.random.default_rng(0).random((10, 32)) < 0.5  # of each class or tag, all of them different


def dataset(name: str) -> Dataset:
    """Return a data set whose queries have more relevant items than any cutoff of a protocol for it."""
    if name == "nuswide":
        tags = np.eye(2, dtype=bool)[np.arange(110_000) % 2]
        images = ArrayImages(np.zeros((len(tags), 1, 1, 3), np.uint8))
        return Dataset(name, images, TagLabels(tags, ("sky", "sea")))
    if name == "ilsvrc2012":
        return labeled_dataset(name, np.arange(410_000) % 8, queries=800)
    return labeled_dataset(name, np.arange(60_000) % 10, queries=10_000)


PUBLISHED = [name for name in list_protocols() if get_protocol(name, name.partition("-")[0]).datasets]


@pytest.mark.parametrize("name", PUBLISHED)
def test_perfect_ranking_scores_one_under_every_published_protocol(name: str) -> None:
    data = dataset(name.partition("-")[0])
    split = make_split(data, name, validation="none")
    labels = data.require_labels()
    numbers = labels.values if labels.values.ndim == 1 else labels.values.argmax(1)
    query, database = (codes.pack(CODES[numbers[indices]]) for indices in (split.query, split.database))
    encoded = EncodedSplit(query, query, database, bits=32)
    metrics = {metric.name: metric.value for metric in evaluate_hasher(encoded, data, split).metrics}
    assert metrics[f"{split.map_name} [ties expected]"] == pytest.approx(1, abs=1e-12)
    assert f"{split.map_name} [ties expected]" == next(iter(metrics))
    if split.top is not None:
        assert split.denominator == "retrieved"
        assert metrics[f"mAP@{split.top}[capped] [ties expected]"] == pytest.approx(1, abs=1e-12)
        assert metrics[f"mAP@{split.top}[relevant] [ties expected]"] < 1, "more items are relevant than are inside"
