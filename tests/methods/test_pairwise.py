"""Pairwise methods: loss values, and steps between epochs that never raise the objective."""

from itertools import product
from math import sqrt, tanh

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from helpers.method_losses import LABELS, NU, build, loss_value, softplus
from proxyhash.methods import TrainingData, build_method
from proxyhash.methods.adsh import Adsh, AdshSettings, database_step, pair_ratio
from proxyhash.methods.cnnh import similarity_codes
from proxyhash.methods.coordinate_descent import improve_bit
from proxyhash.methods.dqn import Dqn
from proxyhash.methods.dsdh import Dsdh, DsdhSettings, discrete_step
from proxyhash.methods.hashnet import HashNet
from proxyhash.methods.hbmp import pursue, regressed_weights
from proxyhash.methods.label_sets import label_sets
from proxyhash.models.heads import HeadConfig, WeightedHead

SEEDS = st.integers(0, 10_000)


def discrete_value(
    codes: NDArray[np.float32],
    nu: NDArray[np.float32],
    labels: NDArray[np.float32],
    weights: NDArray[np.float32],
    settings: DsdhSettings,
) -> float:
    """Return mu ||Y - B W||^2 + n ||W||^2 + eta ||B - U||^2."""
    regression = settings.regression * np.square(labels - codes @ weights).sum() + settings.ridge * np.square(weights).sum()
    return float(regression + settings.quantization * np.square(codes - nu).sum())


def similarity_error(codes: NDArray[np.float64], similarity: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Return sum_cd n_c n_d (S_cd - h_c.h_d / K)^2, for codes (U, K)."""
    gaps = np.square(similarity - codes @ codes.T / codes.shape[1])
    return float(counts @ gaps @ counts)


def signs(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    drawn: NDArray[np.float32] = np.where(random.random(shape) < 0.5, -1, 1).astype(np.float32)
    return drawn


def test_hashnet_weighs_similar_and_dissimilar_pairs_equally() -> None:
    h = [[tanh(x) for x in row] for row in NU.tolist()]
    theta = {(i, j): 3.0 / 2 * sum(a * b for a, b in zip(h[i], h[j], strict=True)) for i, j in ((0, 1), (0, 2), (1, 2))}
    similar = softplus(theta[0, 1]) - theta[0, 1]
    dissimilar = (softplus(theta[0, 2]) + softplus(theta[1, 2])) / 2
    assert loss_value(build("hashnet", slope=3.0)) == pytest.approx(similar + dissimilar)


def test_tanh_of_hashnet_becomes_steeper_with_each_epoch() -> None:
    objective = build("hashnet", growth=3.0)
    assert isinstance(objective, HashNet)
    for epoch in range(1, 4):
        objective.on_epoch_end(lambda: NU, objective.build_head(HeadConfig(2, 2)))
        assert float(objective.beta) == pytest.approx(sqrt(1 + 3 * epoch))


def test_dsdh_equals_dpsh_before_its_first_codes() -> None:
    objective = build("dsdh", quantization=0.5)
    assert isinstance(objective, Dsdh)
    assert loss_value(objective) == pytest.approx(loss_value(build("dpsh", quantization=0.5)))
    pairs = loss_value(build("dpsh", quantization=0.0))
    objective.codes.fill_(-1.0)
    assert loss_value(objective) == pytest.approx(pairs + 0.5 * float((NU + 1).square().mean()))


@given(SEEDS)
def test_no_step_of_dsdh_raises_its_objective(seed: int) -> None:
    random, settings = np.random.default_rng(seed), DsdhSettings(quantization=0.3, sweeps=2)
    labels = np.eye(3, dtype=np.float32)[random.integers(0, 3, 20)]
    nu = np.tanh(random.standard_normal((20, 5))).astype(np.float32)
    before = signs(random, 20, 5)
    gram = before.T @ before + settings.ridge * np.eye(5)
    weights = np.linalg.solve(gram, before.T @ labels).astype(np.float32)
    found = discrete_value(before, nu, labels, weights, settings)
    for _ in range(3):  # the regression is the best there is
        other = (weights + random.normal(0, 0.01, weights.shape)).astype(np.float32)
        assert discrete_value(before, nu, labels, other, settings) >= found - 1e-5
    after = discrete_step(before, nu, labels, settings)
    assert discrete_value(after, nu, labels, weights, settings) <= found + 1e-4


@given(SEEDS, st.integers(2, 6))
def test_no_step_of_cnnh_raises_the_error(seed: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    similarity, counts = 2 * np.eye(classes) - 1, random.integers(1, 9, classes).astype(np.float64)
    codes = signs(random, classes, 6).astype(np.float64)
    error = similarity_error(codes, similarity, counts)
    for _ in range(4):
        codes = similarity_codes(codes, similarity, counts, 1)
        lower = similarity_error(codes, similarity, counts)
        assert lower <= error + 1e-9
        error = lower


def test_improve_bit_ends_in_a_local_optimum() -> None:
    random = np.random.default_rng(0)
    root = random.standard_normal((6, 6))
    residual, counts = root + root.T, random.integers(1, 5, 6).astype(np.float64)

    def total(x: NDArray[np.float64]) -> float:
        weighted = counts * x
        return float(weighted @ (residual - np.diag(np.diag(residual))) @ weighted)

    found = improve_bit(np.ones(6), residual, counts, 50)
    for place in range(6):
        flipped = found.copy()
        flipped[place] *= -1
        assert total(flipped) <= total(found)
    everything = max(total(np.array(x, np.float64)) for x in product((-1, 1), repeat=6))
    assert max(total(improve_bit(signs(random, 6).astype(np.float64), residual, counts, 50)) for _ in range(20)) == (
        pytest.approx(everything)
    )


def test_cnnh_codes_are_indexed_by_class() -> None:
    objective = build("cnnh", bits=4, classes=2)
    centers = objective.get_buffer("centers")
    assert (centers[0] == -centers[1]).all()  # two classes: as far apart as can be
    assert loss_value(objective, centers.double(), torch.tensor([0, 1])) == 0
    assert loss_value(objective, centers.double() / 2, torch.tensor([0, 1])) == pytest.approx(0.25)


def test_similarity_of_label_sets_is_that_of_images() -> None:
    tags = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]], float)
    found = label_sets(tags)
    assert found.counts[0] == 3
    np.testing.assert_array_equal(found.rows[found.member], tags)
    written_out = np.where(tags @ tags.T > 0, 1, -1)
    np.testing.assert_array_equal(found.similarity()[found.member][:, found.member], written_out)
    np.testing.assert_array_equal(found.similarity(slice(1, 3), slice(2)), found.similarity()[1:3, :2])


def test_regressed_weights_solve_nonnegative_least_squares() -> None:
    random = np.random.default_rng(2)
    codes, similarity = signs(random, 9, 5).astype(np.float64), 2 * np.eye(9) - 1
    columns = np.stack([np.outer(bit, bit).ravel() for bit in codes.T], axis=1)
    expected = lsq_linear(columns, similarity.ravel(), (0, np.inf), tol=1e-12).x
    np.testing.assert_allclose(regressed_weights(codes, similarity), expected, atol=1e-5)


@pytest.mark.parametrize("regressed", [False, True])
def test_longer_codes_of_hbmp_fit_the_similarities_better(regressed: bool) -> None:
    sets = label_sets(np.eye(7)[np.arange(30) % 7])
    errors = []
    for bits in (2, 6, 20):
        codes, weights = pursue(sets, bits, 100, np.random.default_rng(0), regressed=regressed)
        errors.append(float(np.square(sets.similarity() - (codes * weights) @ codes.T).sum()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.7 * errors[0]


def test_label_sets_beyond_the_anchors_get_similar_codes() -> None:
    random = np.random.default_rng(0)
    sets = label_sets((random.random((200, 5)) < 0.4).astype(float))
    few, _ = pursue(sets, 16, 10, np.random.default_rng(0), regressed=False)
    assert len(few) == len(sets.rows) > 10
    products, similarity = few[10:] @ few.T / 16, sets.similarity()[10:]
    assert products[similarity > 0].mean() > products[similarity < 0].mean() + 0.3


def test_hbmp_is_a_hinge_on_its_targets() -> None:
    objective = build("hbmp", bits=2, classes=2)
    targets = objective.get_buffer("targets")
    expected = float((1 - NU * targets[:3]).clamp(min=0).mean())
    assert loss_value(objective, targets=torch.arange(3) % 2) == pytest.approx(expected)
    head = build("hbmp-regress", bits=2, classes=2).build_head(HeadConfig(3, 2))
    assert isinstance(head, WeightedHead)
    assert (head.weights >= 0).all()
    assert head.weights.sum() > 0


def written_out(nu: NDArray[np.float32], codes: NDArray[np.float32], own: NDArray[np.float32], queries: list[int]) -> float:
    """Return ADSH's loss with the whole matrix S, for images of classes 0, 1, 2, 0, 1, ..."""
    labels = np.arange(len(codes)) % 3
    ratio = pair_ratio(labels)
    similarity = np.where(labels[queries, None] == labels, 1.0, -ratio)
    bits = nu.shape[1]
    return float(np.square(nu @ codes.T / bits - similarity).mean() + 0.3 * np.square(nu - own).mean())


def test_adsh_loss_equals_the_loss_over_all_pairs() -> None:
    random = np.random.default_rng(0)
    objective = build("adsh", bits=4, classes=3, agreement=0.3)
    assert isinstance(objective, Adsh)
    objective.codes.copy_(torch.from_numpy(signs(random, 12, 4)))
    objective._update_sums()
    nu = np.tanh(random.standard_normal((5, 4))).astype(np.float32)
    codes = objective.codes.numpy()
    expected = written_out(nu, codes, codes[:5], list(range(5)))
    assert loss_value(objective, torch.from_numpy(nu).double(), torch.arange(5) % 3) == pytest.approx(expected, rel=1e-6)


@given(SEEDS)
def test_no_update_of_the_database_raises_the_loss_of_adsh(seed: int) -> None:
    random, labels = np.random.default_rng(seed), np.arange(12) % 3
    nu, codes = np.tanh(random.standard_normal((12, 4))).astype(np.float32), signs(random, 12, 4)
    better = database_step(codes, nu, labels, AdshSettings(agreement=0.3, sweeps=1))
    images = list(range(12))
    assert written_out(nu, better, better, images) <= written_out(nu, codes, codes, images) + 1e-6


def test_database_step_solves_one_bit_exactly() -> None:
    random, labels = np.random.default_rng(1), np.arange(6) % 3
    nu = np.tanh(random.standard_normal((6, 1))).astype(np.float32)
    found = database_step(signs(random, 6, 1), nu, labels, AdshSettings(agreement=0.3, sweeps=1))
    images = list(range(6))
    best = min(
        (np.array(codes, np.float32)[:, None] for codes in product((-1, 1), repeat=6)),
        key=lambda codes: written_out(nu, codes, codes, images),
    )
    assert written_out(nu, found, found, images) == pytest.approx(written_out(nu, best, best, images))


def test_dqn_is_a_loss_of_cosines_plus_quantization() -> None:
    objective = build("dqn", bits=8, embed_dim=2, quantization=0.5)
    assert isinstance(objective, Dqn)
    z = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    pairs = (1 - 0.6) ** 2 + ((1 + 0) ** 2 + (1 + 0.8) ** 2) / 2
    assert loss_value(objective, z, LABELS) == pytest.approx(pairs)
    objective.quantized[:3] = torch.tensor([[1.0, 0.0], [0.6, 0.6], [0.5, 1.0]])
    assert loss_value(objective, z, LABELS) == pytest.approx(pairs + 0.5 * (0.04 + 0.25) / 3)


def test_drsch_sets_its_learned_weights_in_the_head() -> None:
    features = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    task = TrainingData.from_arrays(2, features, np.arange(12) % 2)
    objective = build_method("drsch", task, {"margin": 0.5, "adjacency": 0.0}).double()
    weights = torch.tensor([1.5, 0.5], dtype=torch.float64)
    with torch.no_grad():
        objective.get_parameter("logits").copy_(weights.log())
    h = torch.tanh(NU)
    distance = ((1 - h[:, None] * h) / 2 * weights).sum(2)
    hinges = [1 + distance[0, 1] - distance[0, 2], 1 + distance[0, 1] - distance[1, 2]]
    assert loss_value(objective) == pytest.approx(float(sum(max(0.0, float(x)) for x in hinges)) / 2)
    head = objective.build_head(HeadConfig(3, 2))
    objective.on_epoch_end(lambda: NU, head)
    assert isinstance(head, WeightedHead)
    torch.testing.assert_close(head.weights.double(), weights, rtol=1e-6, atol=1e-6)
    near = build_method("drsch", task, {"margin": 0.5, "adjacency": 1.0}).double()
    squares = np.square(features[:3, None] - features[:3]).sum(2)
    term = np.exp(-squares[0, 1] / (2 * squares.mean())) * float((h[0] - h[1]).square().sum()) / 8
    with torch.no_grad():
        near.get_parameter("logits").copy_(weights.log())
    assert loss_value(near) == pytest.approx(loss_value(objective) + term, rel=1e-5)
