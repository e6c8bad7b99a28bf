"""Pairwise methods: loss values, and steps between epochs that never raise the objective."""

from itertools import pairwise, product
from math import sqrt, tanh

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from helpers.digits import digits, retrieval
from helpers.method_losses import BITS, COUNT, LABELS, NU, build, embeddings, loss_value, small_data, softplus, targets
from proxyhash.losses import similar_pairs
from proxyhash.methods import TrainingData, build_method
from proxyhash.methods.adsh import Adsh, database_step, pair_ratio
from proxyhash.methods.cnnh import similarity_codes
from proxyhash.methods.coordinate_descent import improve_bit
from proxyhash.methods.dqn import Dqn
from proxyhash.methods.drsch import Drsch
from proxyhash.methods.dsdh import Dsdh, DsdhSettings, discrete_step
from proxyhash.methods.hashnet import HashNet
from proxyhash.methods.hbmp import Solver, nonnegative_weights, pursue, regressed_weights
from proxyhash.methods.label_sets import label_sets
from proxyhash.methods.pair_bank import PairBank
from proxyhash.models.heads import HeadConfig, WeightedHead
from proxyhash.training.config import OptimConfig
from proxyhash.training.features import fit_method

SEEDS = st.integers(0, 10_000)
SHORT = OptimConfig.frozen(epochs=8, hidden_dim=128, batch_size=128)


def discrete_value(
    codes: NDArray[np.float32],
    nu: NDArray[np.float32],
    labels: NDArray[np.float32],
    weights: NDArray[np.float32],
    settings: DsdhSettings,
    eta: float,
) -> float:
    """Return mu ||Y - B W||^2 + n ||W||^2 + eta ||B - U||^2."""
    regression = settings.regression * np.square(labels - codes @ weights).sum() + settings.ridge * np.square(weights).sum()
    return float(regression + eta * np.square(codes - nu).sum())


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
    objective = build("dsdh", codes="epoch", quantization=0.5)
    assert isinstance(objective, Dsdh)
    assert loss_value(objective) == pytest.approx(loss_value(build("dpsh", quantization=0.5)))
    pairs = loss_value(build("dpsh", quantization=0.0))
    objective.codes.fill_(-1.0)
    assert loss_value(objective) == pytest.approx(pairs + 0.5 * float((NU + 1).square().mean()))


@given(SEEDS)
def test_no_step_of_dsdh_raises_its_objective(seed: int) -> None:
    random, settings = np.random.default_rng(seed), DsdhSettings(sweeps=2)
    labels = np.eye(3, dtype=np.float32)[random.integers(0, 3, 20)]
    nu = np.tanh(random.standard_normal((20, 5))).astype(np.float32)
    before = signs(random, 20, 5)
    gram = before.T @ before + settings.ridge * np.eye(5)
    weights = np.linalg.solve(gram, before.T @ labels).astype(np.float32)
    found = discrete_value(before, nu, labels, weights, settings, 0.3)
    for _ in range(3):  # the regression is the best there is
        other = (weights + random.normal(0, 0.01, weights.shape)).astype(np.float32)
        assert discrete_value(before, nu, labels, other, settings, 0.3) >= found - 1e-5
    after = discrete_step(before, nu, labels, settings, 0.3)
    assert discrete_value(after, nu, labels, weights, settings, 0.3) <= found + 1e-4


@given(SEEDS, st.sampled_from([0.5, 5.0, 55.0]))
def test_codes_of_a_batch_in_dsdh_are_those_of_the_authors(seed: int, eta: float) -> None:
    """Their train.m, written out: regression from sign(U), then ten sweeps from zero."""
    random = np.random.default_rng(seed)
    labels = np.eye(3, dtype=np.float32)[random.integers(0, 3, 20)]
    u = random.standard_normal((20, 5)).astype(np.float32)
    start = np.sign(u)
    weights = (np.linalg.inv(start.T @ start + 0.1 * np.eye(5)) @ start.T @ labels).astype(np.float32)
    target, codes, values = eta * u + labels @ weights.T, np.zeros((20, 5), np.float32), []
    for _ in range(10):
        for k in range(5):
            rest = np.delete(codes, k, 1) @ np.delete(weights, k, 0) @ weights[k]
            codes[:, k] = np.where(target[:, k] >= rest, 1, -1)
        values.append(discrete_value(codes, u, labels, weights, DsdhSettings(), eta))
    assert all(later <= earlier + 1e-6 * abs(earlier) for earlier, later in pairwise(values))
    found = discrete_step(start, u, labels, DsdhSettings(sweeps=10), eta, start=np.zeros_like(u))
    np.testing.assert_array_equal(found, codes)


def test_loss_of_dsdh_is_that_of_the_authors() -> None:
    objective = build("dsdh", bits=2, classes=2)
    assert isinstance(objective, Dsdh)
    assert objective.eta == pytest.approx(55)
    u = np.asarray(NU)
    codes = discrete_step(
        np.where(u >= 0, 1, -1).astype(np.float32),
        u.astype(np.float32),
        np.eye(2, dtype=np.float32)[LABELS],
        DsdhSettings(sweeps=10),
        55.0,
        start=np.zeros((3, 2), np.float32),
    )
    per_image = float(np.square(codes - u).sum(1).mean())
    pairs = loss_value(build("dpsh", quantization=0.0))
    assert loss_value(objective) == pytest.approx(pairs + 55 / 12 * per_image)


def test_dpsh_weighs_quantization_as_its_authors_do() -> None:
    per_image = float((NU - torch.where(NU >= 0, 1.0, -1.0)).square().sum(1).mean())
    assert loss_value(build("dpsh")) == pytest.approx(loss_value(build("dpsh", quantization=0.0)) + 10 / 12 * per_image)


@pytest.mark.parametrize("kind", ["classes", "tags"])
@pytest.mark.parametrize("at_once", [7, 1 << 20])
def test_gradient_of_a_pair_bank_is_that_of_the_authors(kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.methods.pair_bank._PAIRS_AT_ONCE", at_once)
    data, everyone = small_data(kind), targets(kind)
    bank, indices = PairBank(data.require_labels(), BITS).double(), torch.tensor([4, 0, 11, 29])
    known = torch.randn(COUNT, BITS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bank.embeddings.copy_(known)
    u = torch.randn(4, BITS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    bank(u, everyone[indices], indices).backward()
    known[indices] = u.detach()
    similar = similar_pairs(everyone)[indices].double()
    sigmoid = 1 / (1 + torch.exp(-(u.detach() @ known.T) / 2))
    torch.testing.assert_close(u.grad, (sigmoid - similar) @ known / (4 * COUNT))  # dJdU of train.m, over their scale


def test_pair_bank_of_a_batch_of_all_images_is_the_mean_over_pairs() -> None:
    data, everyone, u = small_data("classes"), targets("classes"), embeddings().detach().double()
    theta = u @ u.T / 2
    expected = torch.log1p(theta.exp()) - similar_pairs(everyone) * theta
    bank = PairBank(data.require_labels(), BITS).double()
    assert bank(u, everyone, torch.arange(COUNT)).item() == pytest.approx(expected.mean().item())


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
    np.testing.assert_allclose(nonnegative_weights(codes, similarity), expected, atol=1e-5)


@given(SEEDS, st.integers(1, 8))
def test_regressed_weights_are_those_of_a_pseudoinverse_without_the_diagonal(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    codes, similarity = signs(random, 6, bits).astype(np.float64), 2 * np.eye(6) - 1
    apart = ~np.eye(6, dtype=bool)
    columns = np.stack([np.outer(bit, bit)[apart] for bit in codes.T], axis=1)
    np.testing.assert_allclose(regressed_weights(codes, similarity), np.linalg.pinv(columns) @ similarity[apart], atol=1e-6)


@pytest.mark.parametrize("solve", [None, regressed_weights, nonnegative_weights])
def test_longer_codes_of_hbmp_fit_the_similarities_better(solve: Solver | None) -> None:
    sets = label_sets(np.eye(7)[np.arange(30) % 7])
    errors = []
    for bits in (2, 6, 20):
        codes, weights = pursue(sets, bits, 100, np.random.default_rng(0), solve)
        gaps = np.square(sets.similarity() - (codes * weights) @ codes.T)
        errors.append(float(gaps.sum() - (np.trace(gaps) if solve is regressed_weights else 0)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.7 * errors[0]


def test_label_sets_beyond_the_anchors_get_similar_codes() -> None:
    random = np.random.default_rng(0)
    sets = label_sets((random.random((200, 5)) < 0.4).astype(float))
    few, _ = pursue(sets, 16, 10, np.random.default_rng(0))
    assert len(few) == len(sets.rows) > 10
    products, similarity = few[10:] @ few.T / 16, sets.similarity()[10:]
    assert products[similarity > 0].mean() > products[similarity < 0].mean() + 0.3


def test_hbmp_is_a_hinge_on_its_targets() -> None:
    objective = build("hbmp", bits=2, classes=2)
    codes = objective.get_buffer("targets")
    expected = float((1 - NU * codes[:3]).clamp(min=0).mean())
    assert loss_value(objective, targets=torch.arange(3) % 2) == pytest.approx(expected)
    head = build("hbmp-regress", bits=2, classes=2).build_head(HeadConfig(3, 2))
    assert isinstance(head, WeightedHead)
    assert head.weights.sum() > 0
    earlier = build("hbmp-regress", bits=2, classes=2, nonnegative=True).build_head(HeadConfig(3, 2))
    assert isinstance(earlier, WeightedHead)
    assert (earlier.weights >= 0).all()


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


def authors_adsh(u: NDArray[np.float32], codes: NDArray[np.float32], queries: list[int], gamma: float) -> float:
    """Return ||U V' - K S||^2 + gamma ||V_Omega - U||^2, calc_loss of their code without its scale."""
    labels = np.arange(len(codes)) % 3
    similarity = np.where(labels[queries, None] == labels, 1.0, -pair_ratio(labels))
    return float(np.square(u @ codes.T - u.shape[1] * similarity).sum() + gamma * np.square(codes[queries] - u).sum())


def test_adsh_loss_is_that_of_the_authors() -> None:
    random = np.random.default_rng(0)
    objective = build("adsh", bits=4, classes=3).eval()
    assert isinstance(objective, Adsh)
    assert not objective.codes.any()
    for codes in (np.zeros((12, 4), np.float32), signs(random, 12, 4)):
        objective.codes.copy_(torch.from_numpy(codes))
        objective._update_sums()
        u = np.tanh(random.standard_normal((5, 4))).astype(np.float32)
        expected = authors_adsh(u, codes, list(range(5)), 200) / (12 * 5)
        found = loss_value(objective, torch.from_numpy(u).double(), torch.arange(5) % 3)
        assert 4**2 * found == pytest.approx(expected, rel=1e-5)


@given(SEEDS, st.sampled_from([0.2, 3.0, 200.0]))
def test_update_of_the_database_is_that_of_the_authors(seed: int, gamma: float) -> None:
    """Their solution of V, written out; it lowers their loss."""
    random, labels, queries = np.random.default_rng(seed), np.arange(12) % 3, [7, 0, 2, 10, 5]
    u, before = np.tanh(random.standard_normal((5, 4))).astype(np.float32), signs(random, 12, 4)
    similarity = np.where(labels[queries, None] == labels, 1.0, -pair_ratio(labels))
    spread = np.zeros((12, 4))
    spread[queries] = u
    pull, after = -2 * 4 * similarity.T @ u - 2 * gamma * spread, before.astype(np.float64)
    for k in range(4):
        rest = np.delete(after, k, 1) @ (np.delete(u, k, 1).T @ u[:, k])
        after[:, k] = -np.sign(pull[:, k] + 2 * rest)
    found = database_step(before, u, np.array(queries), labels, gamma / (5 * 4), 1)
    np.testing.assert_array_equal(found, after)
    assert authors_adsh(u, found, queries, gamma) <= authors_adsh(u, before, queries, gamma) + 1e-3


def test_round_of_adsh_updates_codes_from_the_last_queries() -> None:
    objective = build("adsh", bits=4, classes=3, queries=4)
    assert isinstance(objective, Adsh)
    u = np.tanh(np.random.default_rng(0).standard_normal((12, 4)))
    for first in (0, 3, 6, 9):
        images = torch.arange(first, first + 3)
        objective(torch.from_numpy(u[first : first + 3]), images % 3, images)
        assert not objective.codes.any()
    objective(torch.from_numpy(u[:3]), torch.arange(3) % 3, torch.arange(3))  # three passes of four queries are over
    last = u[8:].astype(np.float32)
    expected = database_step(np.zeros((12, 4), np.float32), last, np.arange(8, 12), np.arange(12) % 3, 200 / 16, 1)
    np.testing.assert_array_equal(objective.training_codes().numpy(), expected)
    objective.on_epoch_end(lambda: NU, objective.build_head(HeadConfig(2, 4)))
    assert not np.array_equal(objective.training_codes().numpy(), expected)


@given(SEEDS)
def test_no_update_of_the_database_raises_the_loss_of_adsh(seed: int) -> None:
    random, labels, images = np.random.default_rng(seed), np.arange(12) % 3, list(range(12))
    nu, codes = np.tanh(random.standard_normal((12, 4))).astype(np.float32), signs(random, 12, 4)
    better = database_step(codes, nu, np.arange(12), labels, 0.3, 1)
    assert written_out(nu, better, better, images) <= written_out(nu, codes, codes, images) + 1e-6


def test_database_step_solves_one_bit_exactly() -> None:
    random, labels, images = np.random.default_rng(1), np.arange(6) % 3, list(range(6))
    nu = np.tanh(random.standard_normal((6, 1))).astype(np.float32)
    found = database_step(signs(random, 6, 1), nu, np.arange(6), labels, 0.3, 1)
    best = min(
        (np.array(codes, np.float32)[:, None] for codes in product((-1, 1), repeat=6)),
        key=lambda codes: written_out(nu, codes, codes, images),
    )
    assert written_out(nu, found, found, images) == pytest.approx(written_out(nu, best, best, images))


def test_dqn_is_a_loss_of_cosines_plus_quantization() -> None:
    z = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    authors = 2 * ((1 - 0.6) ** 2 + (1 + 0) ** 2 + (1 + 0.8) ** 2) / 9  # the mean over all nine pairs
    assert loss_value(build("dqn", bits=8, embed_dim=2, quantization=0.5), z, LABELS) == pytest.approx(authors)
    objective = build("dqn", bits=8, pairs="balanced", embed_dim=2, quantization=0.5)
    assert isinstance(objective, Dqn)
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
    near = build_method("drsch", task, {"affinity": "features", "margin": 0.5, "adjacency": 1.0}).double()
    squares = np.square(features[:3, None] - features[:3]).sum(2)
    term = np.exp(-squares[0, 1] / (2 * squares.mean())) * float((h[0] - h[1]).square().sum()) / 8
    with torch.no_grad():
        near.get_parameter("logits").copy_(weights.log())
    assert loss_value(near) == pytest.approx(loss_value(objective) + term, rel=1e-5)
    by_label = build_method("drsch", task, {"margin": 0.5, "adjacency": 1.0}).double()
    gaps = (h[:, None] - h).square().sum(2) / 8
    term = float(gaps[0, 1] + 0.001 * (gaps[0, 2] + gaps[1, 2])) / 3
    with torch.no_grad():
        by_label.get_parameter("logits").copy_(weights.log())
    assert loss_value(by_label) == pytest.approx(loss_value(objective) + term, rel=1e-5)


def test_drsch_has_the_margin_of_its_authors() -> None:
    objective = build("drsch", bits=64)
    assert isinstance(objective, Drsch)
    assert (objective.margin, objective.adjacency) == (5, 0.001)


def test_pairs_of_a_batch_train_better_than_a_bank_of_old_embeddings() -> None:
    """The numbers of docs/methods.md: 0.92 and 0.67."""
    data = TrainingData.from_arrays(16, digits().train, digits().labels)
    quality = {pairs: retrieval(fit_method("dpsh", data, SHORT, pairs=pairs)) for pairs in ("batch", "all")}
    assert quality["batch"] > 0.9
    assert quality["all"] < quality["batch"] - 0.1
