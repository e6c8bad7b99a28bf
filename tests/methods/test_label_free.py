"""Methods that train a head without labels: their authors' losses in NumPy, and their training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from helpers.digits import digits, retrieval
from proxyhash import Hasher
from proxyhash.data import load_dataset
from proxyhash.methods import HeadEncoder, TrainingData, build_method, feature_training
from proxyhash.methods.bihalf import bi_half_loss, bi_half_signs
from proxyhash.methods.cibhash import cibhash_loss
from proxyhash.methods.crovca import coding_rate, crovca_loss
from proxyhash.methods.feature_training import NoiseViews, load_sample, random_batches
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.training.config import TrainConfig
from proxyhash.training.features import fit_method
from proxyhash.training.train import train_hashers
from proxyhash.training.vectors import fit_vectors
from proxyhash.utils.errors import InputError

Doubles = NDArray[np.float64]
NAMES = ["bihalf", "cibhash", "crovca"]
IMAGES, BITS, WIDTH = 7, 6, 5
RANDOM = np.random.default_rng(0)
U, V = RANDOM.standard_normal((2, IMAGES, BITS))
Q = RANDOM.random((IMAGES, WIDTH))


def sigmoid(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def unit(rows: Doubles) -> Doubles:
    found: Doubles = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def with_gradient(x: Doubles) -> Tensor:
    return torch.from_numpy(x.copy()).requires_grad_()


def numeric_gradient(function: Any, x: Doubles, step: float = 1e-6) -> Doubles:
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[index] = step
        gradient[index] = (function(x + change) - function(x - change)) / (2 * step)
    return gradient


def half_half(u: Doubles) -> Doubles:
    """Return +1 for the N // 2 largest values of each column, and -1 for the rest."""
    ranks = np.argsort(np.argsort(-u, axis=0), axis=0)
    return np.where(ranks < len(u) // 2, 1.0, -1.0)


def cosine_error(b: Doubles) -> float:
    half = len(b) // 2
    cosines = [(unit(x[:half]) * unit(x[half : 2 * half])).sum(1) for x in (b, Q)]
    return float(np.square(cosines[0] - cosines[1]).mean())


def test_bi_half_layer_gives_half_of_the_images_each_value_of_a_bit() -> None:
    np.testing.assert_array_equal(bi_half_signs(torch.from_numpy(U)), half_half(U))
    even = bi_half_signs(torch.randn(10, 4, generator=torch.Generator().manual_seed(0)))
    assert even.sum(0).tolist() == [0, 0, 0, 0]


def test_bi_half_gradient_is_that_of_the_codes_plus_gamma_times_their_distance() -> None:
    u, gamma = with_gradient(U), 6.0
    loss = bi_half_loss(u, torch.from_numpy(Q), gamma)
    loss.backward()
    b = half_half(U)
    expected = numeric_gradient(cosine_error, b) + gamma * (U - b) / b.size
    assert u.grad is not None
    np.testing.assert_allclose(u.grad, expected, atol=1e-8)
    assert loss.item() == pytest.approx(cosine_error(b) + gamma / 2 * np.square(U - b).mean())


def contrastive(z: Doubles) -> float:
    """Return the mean over 2N codes of -log(e^(s_pos / 0.3) / sum over all others e^(s / 0.3))."""
    powers = np.exp(unit(z) @ unit(z).T / 0.3)
    terms = [powers[i, (i + IMAGES) % (2 * IMAGES)] / (powers[i].sum() - powers[i, i]) for i in range(2 * IMAGES)]
    return float(-np.log(terms).mean())


def divergence(p: Doubles, q: Doubles) -> float:
    ones = p * (np.log(p + 1e-8) - np.log(q + 1e-8))
    zeros = (1 - p) * (np.log(1 - p + 1e-8) - np.log(1 - q + 1e-8))
    return float((ones + zeros).sum(1).mean())


def test_cibhash_is_a_contrastive_loss_of_signs_plus_a_symmetric_divergence() -> None:
    p, q, codes = sigmoid(U), sigmoid(V), np.sign(np.concatenate([U, V]))
    expected = contrastive(codes) + 0.01 * (divergence(p, q) + divergence(q, p)) / 2
    assert cibhash_loss(torch.from_numpy(U), torch.from_numpy(V), 0.3, 0.01).item() == pytest.approx(expected)


def test_cibhash_gradient_passes_the_signs_and_stops_at_the_second_view_of_a_divergence() -> None:
    u = with_gradient(U)
    cibhash_loss(u, torch.from_numpy(V), 0.3, 0.01).backward()
    p, q, codes = sigmoid(U), sigmoid(V), np.sign(np.concatenate([U, V]))
    of_codes = numeric_gradient(contrastive, codes)[:IMAGES] + 0.005 * numeric_gradient(lambda x: divergence(x, q), p)
    assert u.grad is not None
    np.testing.assert_allclose(u.grad, of_codes * p * (1 - p), atol=1e-8)


def rate_of(u: Doubles, epsilon: float) -> float:
    """Return minus their MCR: (p + m) / (p m) times half the log determinant of I + p / (m eps) X'X."""
    x, (m, p) = unit(u), u.shape
    return float((p + m) / (p * m) * 0.5 * np.log(np.linalg.det(np.eye(p) + p / (m * epsilon) * x.T @ x)))


def crossed(u: Doubles, bits: NDArray[np.bool_]) -> float:
    return float(-np.where(bits, np.log(sigmoid(u)), np.log(1 - sigmoid(u))).mean())


def test_crovca_predicts_the_bits_of_the_other_view_and_raises_the_coding_rate() -> None:
    assert coding_rate(torch.from_numpy(U), 0.05).item() == pytest.approx(rate_of(U, 0.05))
    expected = (crossed(U, V > 0) + crossed(V, U > 0)) / 2 - 0.1 * (rate_of(U, 0.05) + rate_of(V, 0.05)) / 2
    assert crovca_loss(torch.from_numpy(U), torch.from_numpy(V), 0.1, 0.05).item() == pytest.approx(expected)


def test_coding_rate_is_highest_for_orthogonal_directions() -> None:
    same, orthogonal = torch.ones(4, 4), torch.eye(4)
    assert coding_rate(orthogonal, 0.05) > coding_rate(same, 0.05)


@pytest.mark.parametrize("tags", [False, True])
def test_crovca_with_labels_predicts_the_bits_of_mean_outputs(tags: bool) -> None:
    classes = np.arange(IMAGES) % 3
    present = np.random.default_rng(1).random((IMAGES, 4)) < 0.5 if tags else np.eye(3)[classes].astype(bool)
    present[0], present[1:, 0] = False, True  # one image without labels
    given = present if tags else classes
    if not tags:
        present = np.eye(3)[classes].astype(bool)
    made = build_method("crovca-labels", TrainingData.from_arrays(BITS, None, given), {"rate": 0.2}).double()
    targets = torch.from_numpy(given.astype(np.float64) if tags else given)
    means = np.stack([U[mask].mean(0) if mask.any() else np.zeros(BITS) for mask in present.T])
    centers = np.stack([means[row].mean(0) if row.any() else np.zeros(BITS) for row in present])
    expected = crossed(U, centers > 0) - 0.2 * rate_of(U, 0.05)
    assert made(torch.from_numpy(U), targets, torch.arange(IMAGES)).item() == pytest.approx(expected)


def test_views_have_noise_in_proportion_to_the_deviation_of_each_feature() -> None:
    features = torch.tensor([[0.0, 5.0, 1.0], [20.0, 5.0, 3.0]])  # deviations of 10, 0 and 1
    batch = torch.zeros(20_000, 3)
    views = NoiseViews(features, 0.5, seed=0)
    first, second = views.draw(batch), views.draw(batch)
    assert not torch.equal(first, second)
    np.testing.assert_allclose(first.std(0), [5, 0, 0.5], rtol=0.03)
    assert torch.equal(NoiseViews(features, 0.5, seed=0).draw(batch), first)


def test_batches_hold_every_row_once_in_each_epoch() -> None:
    batches = random_batches(10, 4, np.random.default_rng(0))
    epoch = [next(batches) for _ in range(2)]
    assert [len(batch) for batch in epoch] == [5, 5]
    assert sorted(np.concatenate(epoch)) == list(range(10))
    assert len(next(random_batches(3, 64, np.random.default_rng(0)))) == 3


def test_features_beyond_the_limit_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_training, "MAX_VALUES", 4_000)
    monkeypatch.setattr(feature_training, "MIN_ROWS", 10)
    features = np.arange(8_000, dtype=np.float32).reshape(2_000, 4)
    sample = load_sample(TrainingData(8, features)).numpy()
    assert sample.shape == (1_000, 4)
    assert len(np.unique(sample[:, 0])) == 1_000
    np.testing.assert_array_equal(sample, load_sample(TrainingData(8, features)).numpy())
    assert not np.array_equal(sample, load_sample(TrainingData(8, features, seed=1)).numpy())
    np.testing.assert_array_equal(load_sample(TrainingData(8, features[:1_000])).numpy(), features[:1_000])


def test_training_does_not_move_torchs_generator_and_reports_progress() -> None:
    seen: list[tuple[str, float]] = []
    data = TrainingData(8, digits().train[:100], progress=lambda work, done: seen.append((work, done)))
    state = torch.random.get_rng_state()
    fit_method("cibhash", data, steps=4, hidden_dim=8)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert seen == [("training CIBHash", step / 4) for step in range(5)]


@pytest.mark.parametrize("name", NAMES)
def test_training_retrieves_better_than_the_first_step(name: str) -> None:
    data = TrainingData(16, digits().train)
    assert retrieval(fit_method(name, data, steps=300)) > retrieval(fit_method(name, data, steps=1)) + 0.1


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_not_used(name: str) -> None:
    features = digits().train[:100]
    without = fit_method(name, TrainingData(8, features), steps=5)
    labeled = fit_method(name, TrainingData.from_arrays(8, features, digits().labels[:100]), steps=5)
    np.testing.assert_array_equal(without.embed(features), labeled.embed(features))


def test_map_of_bi_half_takes_features_of_any_scale_and_origin() -> None:
    features = digits().train[:200]
    plain = fit_method("bihalf", TrainingData(8, features), steps=20, centered=True)
    moved = fit_method("bihalf", TrainingData(8, 1000 * features + 7), steps=20, centered=True)
    assert isinstance(plain, HeadEncoder)
    assert isinstance(plain.head, LinearHead)
    assert plain.head.config == HeadConfig(64, 8)
    np.testing.assert_allclose(moved.embed(1000 * features + 7), plain.embed(features), atol=0.02)


@pytest.mark.parametrize(
    ("label", "settings", "message"),
    [
        ("bihalf", {"gamma": -1.0}, "gamma must be 0 or above, not -1.0"),
        ("bihalf", {"steps": 0}, "steps must be at least 1, not 0"),
        ("cibhash", {"batch_size": 1}, "batch_size must be at least 2, not 1"),
        ("cibhash", {"temperature": 0.0}, "temperature must be above 0, not 0.0"),
        ("cibhash", {"hidden_dim": -1}, "hidden_dim must be at least 0, not -1"),
        ("crovca", {"noise": float("inf")}, "noise must be 0 or above, not inf"),
        ("crovca", {"distortion": 0.0}, "distortion must be above 0, not 0.0"),
        ("crovca", {"lr": 0.0}, "lr must be above 0, not 0.0"),
        ("crovca-labels", {"rate": float("nan")}, "rate must be 0 or above, not nan"),
        ("bihalf", {"lr": 1e30, "steps": 3}, "The weights of Bi-half are not finite after 3 steps; choose a smaller lr"),
    ],
)
def test_settings_out_of_range_are_refused(label: str, settings: dict[str, Any], message: str) -> None:
    data = TrainingData.from_arrays(8, digits().train[:50], digits().labels[:50])
    with pytest.raises(InputError, match=message):
        fit_method(label, data, **settings)


@pytest.mark.parametrize("name", NAMES)
def test_model_of_images_without_labels_is_saved_and_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    images = load_dataset("digits")
    config = TrainConfig(bits=(8,), method=name, settings={"steps": 3}, backbone="convnet")
    (hasher,) = train_hashers(images, None, config)
    hasher.save(tmp_path / "model")
    pixels = images.images.pixels_in_memory(np.arange(5))
    assert pixels is not None
    np.testing.assert_array_equal(Hasher.load(tmp_path / "model").encode(pixels), hasher.encode(pixels))


@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_half_precision_in_a_file_are_fitted(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", digits().train[:60].astype(np.float16))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    hasher = fit_vectors(vectors, 70, method=name, settings={"steps": 2})  # more bits than values
    assert hasher.encode(vectors).shape == (60, 9)
