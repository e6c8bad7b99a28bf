"""Ranking and triplet methods: histograms, relaxed precision and loss values."""

from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.digits import digits, retrieval
from helpers.method_losses import LABELS, NU, build, loss_value
from proxyhash.evaluation.average_precision import average_precision
from proxyhash.evaluation.counts import TieCounts
from proxyhash.losses import (
    batch_histograms,
    mutual_information,
    relaxed_average_precision,
    similarity_levels,
    soft_histograms,
    triplet_hinge,
)
from proxyhash.methods import TrainingData
from proxyhash.training.features import fit_method


def random_codes(seed: int, count: int, bits: int) -> torch.Tensor:
    return torch.from_numpy(np.where(np.random.default_rng(seed).random((count, bits)) < 0.5, -1.0, 1.0))


def test_soft_histogram_splits_a_distance_between_two_bins() -> None:
    distances = torch.tensor([[2.25, 0.0, 4.0, 1.0]])
    chosen = torch.tensor([[True, True, True, False]])
    assert soft_histograms(distances, chosen, 4).tolist() == [[1.0, 0.0, 0.75, 0.25, 1.0]]


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_soft_histograms_of_saturated_embeddings_are_the_hard_ones(seed: int, bits: int) -> None:
    nu, labels = random_codes(seed, 15, bits), torch.arange(15) % 3
    found = batch_histograms(nu, labels)
    for query in range(15):
        others = np.arange(15) != query
        distances = (nu[query] != nu).sum(1).numpy()
        for histogram, same in zip(found, (True, False), strict=True):
            chosen = others & ((labels == labels[query]).numpy() == same)
            np.testing.assert_allclose(
                histogram[query].numpy(), np.bincount(distances[chosen], minlength=bits + 1), atol=1e-9
            )


def test_mutual_information_is_in_nats() -> None:
    similar, dissimilar = torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    assert mutual_information(similar, dissimilar).tolist() == pytest.approx([log(2), 0.0])
    quarter = mutual_information(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 2.0]])).item()
    assert quarter == pytest.approx(log(2) - 0.75 * (log(3) - 2 / 3 * log(2)))


def test_ranking_losses_of_saturated_embeddings() -> None:
    nu = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    # The two of class 0 find each other first. The third has class 1 and class 0 (twice) at distance 1, the fourth is fine.
    assert loss_value(build("talr-ap"), nu, labels) == pytest.approx(1 - (1 + 1 + (0 + 1 + 1) / (0 + 3 + 1) + 1) / 4)
    certain, mixed = log(3) - 2 / 3 * log(2), 0.0
    assert loss_value(build("mihash", bins="bits", slope=2.0), nu, labels) == pytest.approx(-(3 * certain + mixed) / 4)


def authors_mutual_information(x: np.ndarray, labels: np.ndarray, bins: int, slope: float) -> float:
    """Return the mean of H(D) - H(D | C) over the batch, as their mi_forward.m computes it, but in nats."""
    count, bits = x.shape
    phi = 2 / (1 + np.exp(-slope * x)) - 1
    distances, width = (bits - phi @ phi.T) / 2, bits / bins
    similar = (labels[:, None] == labels) & ~np.eye(count, dtype=bool)
    dissimilar = labels[:, None] != labels
    centers = np.arange(bins + 1) * width
    near = np.abs(distances[..., None] - centers)
    pulses = np.where(near <= width, 1 - near / width, 0)
    positive, negative = (pulses * similar[..., None]).sum(1), (pulses * dissimilar[..., None]).sum(1)
    prior = similar.sum(1) / (count - 1)

    def entropy(p: np.ndarray) -> np.ndarray:
        found: np.ndarray = -(p * np.log(np.where(p > 0, p, 1))).sum(1)
        return found

    within = prior * entropy(positive / positive.sum(1, keepdims=True))
    within += (1 - prior) * entropy(negative / negative.sum(1, keepdims=True))
    return float((entropy((positive + negative) / (count - 1)) - within).mean())


@pytest.mark.parametrize(("bits", "settings"), [(32, {}), (12, {}), (8, {"bins": 4, "slope": 1.0}), (6, {"bins": "bits"})])
def test_mihash_is_the_mutual_information_of_its_authors(bits: int, settings: dict[str, Any]) -> None:
    u, labels = torch.randn(12, bits, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 4
    bins = settings.get("bins", 16)
    expected = authors_mutual_information(
        u.numpy(), labels.numpy(), bits if bins == "bits" else bins, settings.get("slope", 10.0)
    )
    assert loss_value(build("mihash", bits=bits, classes=4, **settings), u, labels) == pytest.approx(-expected)


@given(st.integers(0, 10_000))
def test_relaxed_precision_is_exact_without_ties_and_near_with_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    single = random.random((1, 12)) < 0.5
    relevant = single & (random.random((1, 12)) < 0.5)
    relevant[0, 0], single[0, 0] = True, True
    for items, hits, tolerance in [
        (single.astype(np.int64), relevant.astype(np.int64), 1e-9),
        *([(drawn := random.integers(1, 6, (1, 9)), random.integers(1, drawn + 1), 0.06)]),
    ]:
        exact = average_precision(TieCounts(items, hits))
        relaxed = relaxed_average_precision(torch.from_numpy(1.0 * hits), torch.from_numpy(1.0 * (items - hits)))
        np.testing.assert_allclose(relaxed.numpy(), exact, atol=tolerance)


def test_relaxed_precision_is_close_to_the_exact_one() -> None:
    nu, labels = random_codes(3, 60, 12), torch.arange(60) % 4
    similar, dissimilar = batch_histograms(nu, labels)
    counts = TieCounts((similar + dissimilar).round().long().numpy(), similar.round().long().numpy())
    np.testing.assert_allclose(relaxed_average_precision(similar, dissimilar).numpy(), average_precision(counts), atol=0.02)


def test_triplet_hinge_of_one_triplet() -> None:
    distances = torch.tensor([[0.0, 3.0, 2.5], [3.0, 0.0, 9.0], [2.5, 9.0, 0.0]])
    levels = similarity_levels(LABELS)
    assert levels.tolist() == [[-1, 1, 0], [1, -1, 0], [0, 0, -1]]
    assert triplet_hinge(distances, levels, 1.0).item() == pytest.approx((1.5 + 0) / 2)
    assert triplet_hinge(distances, similarity_levels(torch.tensor([0, 1, 2])), 1.0).item() == 0


def test_graded_triplet_hinge_equals_a_loop() -> None:
    random = np.random.default_rng(0)
    tags = torch.from_numpy((random.random((7, 4)) < 0.5).astype(np.float32))
    distances = torch.from_numpy(random.random((7, 7)))
    levels = similarity_levels(tags, graded=True)
    total = weights = 0.0
    for a in range(7):
        for p in range(7):
            for n in range(7):
                shared_p, shared_n = int(tags[a] @ tags[p]), int(tags[a] @ tags[n])
                if len({a, p, n}) == 3 and shared_p > shared_n:
                    weight = 2.0**shared_p - 2.0**shared_n
                    total += weight * max(0.0, 0.3 + float(distances[a, p] - distances[a, n]))
                    weights += weight
    assert triplet_hinge(distances, levels, 0.3).item() == pytest.approx(total / weights)


def test_ninh_and_dsrh_are_hinges_on_triplets() -> None:
    squares = (NU[:, None] - NU).square().sum(2) / 4
    hinges = [max(0.0, float(1 + squares[0, 1] - squares[0, 2])), max(0.0, float(1 + squares[0, 1] - squares[1, 2]))]
    assert loss_value(build("ninh", margin=1.0)) == pytest.approx(sum(hinges) / 2)
    distance = (2 - NU @ NU.T) / 2
    hinges = [max(0.0, float(1 + distance[0, 1] - distance[0, 2])), max(0.0, float(1 + distance[0, 1] - distance[1, 2]))]
    balance = ((1 / 3) ** 2 + (0.5 / 3) ** 2) / 2
    assert loss_value(build("dsrh", margin=0.5, balance=3.0)) == pytest.approx(sum(hinges) / 2 + 1.5 * balance)


def test_ranking_methods_retrieve_nearly_as_well_as_proxies() -> None:
    """They were the paper's strongest rankers of ten classes; digits have ten, too."""
    material = TrainingData.from_arrays(32, digits().train, digits().labels)
    quality = {name: retrieval(fit_method(name, material)) for name in ("shclm", "mihash", "talr-ap")}
    assert min(quality.values()) > quality["shclm"] - 0.02
