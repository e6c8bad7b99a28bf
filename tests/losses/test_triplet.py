from collections.abc import Iterator
from math import exp, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxyhash import InputError, codes
from proxyhash.losses import (
    hamming_distances,
    hamming_triplet,
    hamming_triplet_between,
    margin_in_bits,
    similar_pairs,
)


def embeddings(images: int, bits: int, seed: int) -> Tensor:
    return torch.tensor(np.tanh(np.random.default_rng(seed).standard_normal((images, bits))))


def some_labels(images: int, tagged: bool, seed: int) -> Tensor:
    random = np.random.default_rng(seed)
    return torch.tensor(random.random((images, 4)) < 0.3 if tagged else random.integers(0, 3, images))


def triplets(labels: Tensor, anchors: range) -> Iterator[tuple[int, int, int]]:
    """Name every triplet in the plainest way."""

    def alike(i: int, j: int) -> bool:
        return bool((labels[i] & labels[j]).any()) if labels.ndim == 2 else bool(labels[i] == labels[j])

    for a in anchors:
        for p in range(len(labels)):
            for n in range(len(labels)):
                if a not in (p, n) and alike(a, p) and not alike(a, n):
                    yield a, p, n


def one_by_one(nu: Tensor, labels: Tensor, margin: float, anchors: range | None = None) -> Tensor:
    losses = [
        torch.log1p(torch.exp(margin + (nu[a] @ nu[n] - nu[a] @ nu[p]) / 2))
        for a, p, n in triplets(labels, anchors or range(len(labels)))
    ]
    return torch.stack(losses).mean() if losses else 0 * nu.sum()


def test_triplet_loss_value() -> None:
    nu = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    # Distances in bits: (0, 1) 0.5, (0, 2) 1.5, (1, 2) 1. Triplets: (0, 1, 2) and (1, 0, 2).
    expected = (log(1 + exp(3 + 0.5 - 1.5)) + log(1 + exp(3 + 0.5 - 1))) / 2
    assert hamming_triplet(nu, torch.tensor([4, 4, 9]), 3).item() == pytest.approx(expected, rel=1e-6)


@given(
    images=st.integers(1, 9),
    tagged=st.booleans(),
    margin=st.sampled_from([-1.0, 0.0, 2.5]),
    seed=st.integers(0, 999),
    at_once=st.sampled_from([1, 20, 1000]),
)
def test_value_and_gradient_equal_a_triple_loop(images: int, tagged: bool, margin: float, seed: int, at_once: int) -> None:
    nu, labels = embeddings(images, 5, seed).requires_grad_(), some_labels(images, tagged, seed)
    ours = hamming_triplet_between(nu, nu, similar_pairs(labels), margin, triplets_at_once=at_once)
    plain = one_by_one(nu, labels, margin)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(hamming_triplet(nu, labels, margin), plain)
    for mine, theirs in zip(torch.autograd.grad(ours, nu), torch.autograd.grad(plain, nu), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("tagged", [False, True])
def test_losses_of_several_processes_sum_to_that_of_the_batch(tagged: bool) -> None:
    nu, labels = embeddings(12, 6, 1), some_labels(12, tagged, 1)
    total, count = torch.zeros((), dtype=torch.float64), 0
    for first, last in ((0, 5), (5, 6), (6, 12)):
        similar = similar_pairs(labels[first:last], labels)
        share = hamming_triplet_between(nu[first:last], nu, similar, 1, offset=first)
        torch.testing.assert_close(share, one_by_one(nu, labels, 1, range(first, last)))
        mine = len(list(triplets(labels, range(first, last))))
        total, count = total + share * mine, count + mine
    torch.testing.assert_close(total / count, hamming_triplet(nu, labels, 1))


def test_an_anchor_is_not_its_own_negative_either() -> None:
    nu, similar = embeddings(8, 4, 10), similar_pairs(some_labels(8, False, 10))
    hollow = similar & ~torch.eye(8, dtype=torch.bool)
    torch.testing.assert_close(hamming_triplet_between(nu, nu, hollow, 1), hamming_triplet_between(nu, nu, similar, 1))


def test_anchors_from_elsewhere_are_compared_with_all_others() -> None:
    nu = embeddings(6, 4, 2)
    similar = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
    loss = hamming_triplet_between(nu[:3], nu[3:], similar, 2, offset=None)
    d = hamming_distances(nu[:3], nu[3:])
    excess = [
        d[0, 0] - d[0, 2],
        d[0, 1] - d[0, 2],
        d[1, 1] - d[1, 0],
        d[1, 2] - d[1, 0],
        d[2, 2] - d[2, 0],
        d[2, 2] - d[2, 1],
    ]
    torch.testing.assert_close(loss, torch.log1p(torch.exp(2 + torch.stack(excess))).mean())


@pytest.mark.parametrize("tagged", [False, True])
def test_gradients_match_finite_differences(tagged: bool) -> None:
    nu, others, labels = embeddings(7, 4, 3), embeddings(9, 4, 4), some_labels(9, tagged, 3)
    assert torch.autograd.gradcheck(lambda n: hamming_triplet(n, labels[:7], 1.5), nu.requires_grad_())
    similar = similar_pairs(labels[:7], labels)
    assert torch.autograd.gradcheck(
        lambda a, o: hamming_triplet_between(a, o, similar, 1.5, offset=2), (nu, others.requires_grad_())
    )


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.arange(4), torch.zeros(4, 3), torch.ones(4, 3)])
def test_without_triplets_the_loss_is_zero_and_can_be_minimized(labels: Tensor) -> None:
    nu = embeddings(4, 5, 5).requires_grad_()
    loss = hamming_triplet(nu, labels, 2)
    (gradient,) = torch.autograd.grad(loss, nu)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(nu))


@pytest.mark.parametrize("bits", [16, 37, 128])
def test_between_corners_the_distance_is_that_of_the_codes(bits: int) -> None:
    corners = np.where(np.random.default_rng(6).random((20, bits)) < 0.5, -1.0, 1.0)
    packed = codes.pack(corners)
    ours = hamming_distances(torch.tensor(corners, dtype=torch.float32), torch.tensor(corners))
    np.testing.assert_array_equal(ours.numpy(), codes.hamming_distances(packed, packed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_embeddings_stay_finite_and_exact(dtype: torch.dtype) -> None:
    corners = torch.ones(4, 4096, dtype=dtype)
    corners[2:] = -1
    # Right labels: every positive at 0 bits, every negative at 4096. Wrong ones: the positive at 4096, the negatives at 0
    # and 4096.
    for labels, expected in (([0, 0, 1, 1], 0.0), ([0, 1, 1, 0], (10 + 4096 + log(1 + exp(10))) / 2)):
        nu = corners.clone().requires_grad_()
        loss = hamming_triplet(nu, torch.tensor(labels), 10)
        (gradient,) = torch.autograd.grad(loss, nu)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        assert gradient.isfinite().all()


def test_softplus_is_exact_for_large_values() -> None:
    nu = torch.zeros(3, 2, dtype=torch.float64)
    loss = hamming_triplet(nu, torch.tensor([0, 0, 1]), 21)
    assert loss.item() - 21 == pytest.approx(exp(-21), rel=1e-3)


class LargestTensor(TorchDispatchMode):
    """Remember the most elements that any result had."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("tagged", [False, True])
def test_no_tensor_grows_with_the_number_of_triplets(tagged: bool) -> None:
    nu, labels = embeddings(96, 8, 7).requires_grad_(), some_labels(96, tagged, 7)
    similar = similar_pairs(labels)
    largest, losses = [], []
    for at_once in (5000, 10_000_000):
        with LargestTensor() as mode:  # type: ignore[no-untyped-call, unused-ignore]
            losses.append(hamming_triplet_between(nu, nu, similar, 2, triplets_at_once=at_once))
            torch.autograd.grad(losses[-1], nu, retain_graph=True)
        largest.append(mode.elements)
    assert largest[0] <= 2 * 96**2  # at most the list of similar pairs, two numbers each
    assert largest[1] > 200_000
    torch.testing.assert_close(*losses)


def test_autocast_does_not_reduce_the_precision_of_distances() -> None:
    nu, labels = embeddings(12, 128, 8).float(), some_labels(12, False, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        blurred = hamming_triplet(nu, labels, 2)
    torch.testing.assert_close(blurred, hamming_triplet(nu, labels, 2))
    assert hamming_triplet(nu.bfloat16(), labels, 2).dtype == torch.float32


def test_similar_pairs_share_a_class_or_a_tag() -> None:
    assert similar_pairs(torch.tensor([1, 2]), torch.tensor([2, 1, 3])).tolist() == [
        [False, True, False],
        [True, False, False],
    ]
    tags = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    assert similar_pairs(tags).int().tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_wrong_shapes_are_refused() -> None:
    nu, similar = embeddings(3, 4, 9), torch.eye(3, dtype=torch.bool)
    with pytest.raises(InputError, match="bool matrix of 3 anchors by 3 others"):
        hamming_triplet_between(nu, nu, similar[:2], 1)
    with pytest.raises(InputError, match=r"not torch\.float32"):
        hamming_triplet_between(nu, nu, similar.float(), 1)
    with pytest.raises(InputError, match="3 anchors from position 1 on do not lie within 3 others"):
        hamming_triplet_between(nu, nu, similar, 1, offset=1)
    with pytest.raises(InputError, match=r"of equal bits are needed, not \(3, 4\) and \(3, 2\)"):
        hamming_triplet_between(nu, nu[:, :2], similar, 1)
    with pytest.raises(InputError, match="on both sides"):
        similar_pairs(torch.zeros(3), torch.zeros(3, 2))


def test_a_margin_is_in_bits_or_a_share_of_the_code() -> None:
    assert [margin_in_bits(margin, 32) for margin in (None, 0.125, 1.0, 4.0)] == [2, 4, 1, 4]
