"""Shallow methods: closed-form steps compared with brute force."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.digits import digits
from proxyhash.methods import LinearEncoder, TrainingData
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.kernel import choose_anchors, squared_distances
from proxyhash.methods.ksh import Residual, agreement
from proxyhash.methods.pca import moments
from proxyhash.methods.sdh import _regression, _with_constant
from proxyhash.models.heads import UnitKernelHead
from proxyhash.training.features import fit_method
from proxyhash.utils.errors import InputError


def discrete_objective(codes: NDArray[np.float32], target: NDArray[np.float32], coupling: NDArray[np.float32]) -> float:
    """Return tr(B M B') - 2 tr(B Q')."""
    return float(np.sum((codes @ coupling) * codes) - 2 * np.sum(codes * target))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_no_sweep_raises_the_discrete_objective(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    target = random.standard_normal((7, bits)).astype(np.float32)
    root = random.standard_normal((bits, bits)).astype(np.float32)
    codes = np.sign(random.standard_normal((7, bits))).astype(np.float32)
    value = discrete_objective(codes, target, root @ root.T)
    for _ in range(4):
        codes = cyclic_descent(codes, target, root @ root.T, 1)
        lower = discrete_objective(codes, target, root @ root.T)
        assert lower <= value + 1e-4
        value = lower


def test_cyclic_descent_solves_one_bit_exactly() -> None:
    random = np.random.default_rng(0)
    target, coupling = random.standard_normal((5, 1)).astype(np.float32), np.array([[2.0]], np.float32)
    found = cyclic_descent(np.ones((5, 1), np.float32), target, coupling, 1)
    everything = [np.array(signs, np.float32)[:, None] for signs in product((-1, 1), repeat=5)]
    best = min(everything, key=lambda codes: discrete_objective(codes, target, coupling))
    np.testing.assert_array_equal(found, best)


def test_residual_operator_equals_its_matrix() -> None:
    labels = np.array([0, 1, 0, 2, 1])
    kernel = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    residual = Residual(kernel, labels, bits=8)
    bit = np.array([1.0, -1, 1, 1, -1])
    residual.subtract(bit)
    written_out = 8 * np.where(labels[:, None] == labels, 1.0, -1.0) - np.outer(bit, bit)
    np.testing.assert_allclose(np.stack([residual @ each for each in np.eye(5)], axis=1), written_out)
    assert agreement(bit, residual) == pytest.approx(bit @ written_out @ bit)
    np.testing.assert_allclose(residual.projected, kernel.T @ written_out @ kernel, rtol=1e-5)
    _, vectors = scipy.linalg.eigh(kernel.T @ written_out @ kernel, kernel.T @ kernel)
    cosine = residual.top() @ vectors[:, -1] / np.linalg.norm(residual.top()) / np.linalg.norm(vectors[:, -1])
    assert abs(cosine) == pytest.approx(1, abs=1e-4)


def test_moments_and_distances_equal_numpy() -> None:
    features = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)
    mean, covariance = moments(features, chunk=37)
    np.testing.assert_allclose(mean, features.mean(0), atol=1e-6)
    np.testing.assert_allclose(covariance, np.cov(features.T, bias=True), atol=1e-5)
    for each, one_chunk in zip((mean, covariance), moments(features), strict=True):
        np.testing.assert_allclose(each, one_chunk, atol=1e-6)
    by_hand = np.square(features[:, None] - features[None, :4]).sum(2)
    np.testing.assert_allclose(squared_distances(features, features[:4]), by_hand, atol=1e-4)
    with pytest.raises(InputError, match="301 anchors"):
        choose_anchors(features, 301, 0)


def test_moments_are_accurate_far_from_zero_and_read_every_row_once() -> None:
    random = np.random.default_rng(1)
    features = (random.standard_normal((1000, 5)) * [1, 2, 3, 4, 5] + 1000).astype(np.float32)
    features[:100] += 50  # the first chunk is not typical
    reads: list[int] = []

    class Rows:
        shape = features.shape

        def __len__(self) -> int:
            return len(features)

        def __getitem__(self, rows: slice) -> np.ndarray:
            reads.extend(range(*rows.indices(len(features))))
            return features[rows]

    mean, covariance = moments(Rows(), chunk=100)  # type: ignore[arg-type]
    assert sorted(reads) == list(range(1000))
    np.testing.assert_allclose(mean, features.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(features.T.astype(np.float64), bias=True), rtol=1e-4, atol=1e-2)


def test_itq_cca_is_finite_with_more_bits_than_classes() -> None:
    encoder = fit_method("itq-cca", TrainingData.from_arrays(48, digits().train, digits().labels))
    assert np.isfinite(encoder.embed(digits().query)).all()


def test_itq_refuses_more_bits_than_features() -> None:
    with pytest.raises(InputError, match="at most 64 principal components"):
        fit_method("itq", TrainingData(65, digits().train))


def test_sdh_has_the_kernel_and_the_regressions_of_its_authors() -> None:
    """The last regression of their SDH.m, on features of length 1 with a constant column, from our codes."""
    features, labels = digits().train[:400], digits().labels[:400]
    encoder = fit_method("sdh", TrainingData.from_arrays(8, features, labels), anchors=50)
    assert isinstance(encoder, LinearEncoder)
    assert encoder.anchors is not None
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    points = encoder.anchors.points
    assert not points[-1].any()  # the constant
    squares = np.square(unit[:, None] - points[:-1]).sum(2)
    phi = np.column_stack([np.exp(-squares / (2 * 0.4**2)), np.ones(400)]).astype(np.float64)
    outputs = encoder.embed(features).astype(np.float64)
    weights = np.linalg.lstsq(phi, outputs, rcond=None)[0]
    np.testing.assert_allclose(phi @ weights, outputs, atol=1e-3)  # a linear map of that kernel and a constant
    codes = np.sign(outputs)
    ridge = np.linalg.solve(phi.T @ phi + 0.01 * np.eye(51), phi.T @ codes)
    agreement = (np.sign(phi @ ridge) == codes).mean()
    assert agreement > 0.95


def test_centered_regression_of_sdh_is_that_with_a_constant_column() -> None:
    random = np.random.default_rng(0)
    phi, codes = random.random((60, 7)).astype(np.float32), np.sign(random.standard_normal((60, 3))).astype(np.float32)
    projection, constant = _regression(phi - phi.mean(0), 0.01)(codes)
    found = (phi - phi.mean(0)) @ projection + constant
    whole = np.column_stack([phi, np.ones(60)]).astype(np.float64)
    expected = whole @ np.linalg.solve(whole.T @ whole + 0.01 * np.eye(8), whole.T @ codes)
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("sigma", [0.1, 0.4, 2.0])
def test_anchor_at_zero_is_a_constant(sigma: float) -> None:
    random = np.random.default_rng(0)
    features, constant = random.standard_normal((60, 7)).astype(np.float32), np.array([0.5, -0.25], np.float32)
    anchors = choose_anchors(features, 5, 0, sigma)
    mean, projection = anchors.kernel(features).mean(0), random.standard_normal((5, 2)).astype(np.float32)
    expected = (anchors.kernel(features) - mean) @ projection + constant
    extended, longer, weights = _with_constant(anchors, mean, projection, constant)
    np.testing.assert_allclose((extended.kernel(features) - longer) @ weights, expected, rtol=1e-4, atol=1e-4)


def test_kernel_of_unit_vectors_does_not_depend_on_their_length(tmp_path: Path) -> None:
    data = TrainingData.from_arrays(8, digits().train[:300], digits().labels[:300])
    encoder = fit_method("sdh", data, anchors=30)
    assert isinstance(encoder, LinearEncoder)
    query = digits().query
    np.testing.assert_allclose(encoder.embed(3 * query), encoder.embed(query), atol=1e-3)
    encoder.save(tmp_path / "sdh.safetensors")
    np.testing.assert_array_equal(LinearEncoder.load(tmp_path / "sdh.safetensors").embed(query), encoder.embed(query))
    head = encoder.to_head()
    assert isinstance(head, UnitKernelHead)
    np.testing.assert_allclose(head(torch.from_numpy(query)).numpy(), encoder.embed(query), atol=2e-3)
    with pytest.raises(InputError, match="sigma must be at least"):
        fit_method("sdh", data, anchors=30, sigma=0.0)
