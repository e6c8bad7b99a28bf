from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest
import torch
from torch import Tensor

from proxyhash import InputError
from proxyhash.losses import (
    balanced_binary_cross_entropy,
    bitwise_cross_entropy,
    cosine_cross_entropy,
    proxy_cross_entropy,
    proxy_nca,
    tag_frequencies,
)
from proxyhash.proxies.geometry import random_rotation

ByClass = Callable[[Tensor, Tensor, Tensor, float], Tensor]
BY_CLASS = [proxy_cross_entropy, proxy_nca, cosine_cross_entropy]


def some_batch(images: int = 7, classes: int = 5, bits: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, labels and proxies of norm sqrt(bits), in double precision."""
    random = np.random.default_rng(0)
    nu = np.tanh(random.standard_normal((images, bits)))
    proxies = random.standard_normal((classes, bits))
    proxies *= np.sqrt(bits) / np.linalg.norm(proxies, axis=1, keepdims=True)
    return torch.tensor(nu), torch.tensor(random.integers(0, classes, images)), torch.tensor(proxies)


# Two bits, tau = 4: logits are 2 w.nu. The first image scores (2, 0, -2), the second (-1, 1, 1).
NU = torch.tensor([[0.5, 0.5], [-0.5, 0.0]])
LABELS = torch.tensor([0, 2])
PROXIES = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])


def test_cross_entropy_value() -> None:
    first = log(exp(2) + exp(0) + exp(-2)) - 2
    second = log(exp(-1) + exp(1) + exp(1)) - 1
    assert proxy_cross_entropy(NU, LABELS, PROXIES, 4).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_nca_value() -> None:
    first, second = log(exp(0) + exp(-2)) - 2, log(exp(-1) + exp(1)) - 1
    assert proxy_nca(NU, LABELS, PROXIES, 4).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_cosine_cross_entropy_value() -> None:
    # The first image points at its proxy; the second is 45 degrees from the second and from the third.
    half = 4 / np.sqrt(2)
    first, second = log(exp(4) + exp(0) + exp(-4)) - 4, log(exp(-half) + 2 * exp(half)) - half
    assert cosine_cross_entropy(NU, LABELS, PROXIES, 4).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_bitwise_cross_entropy_value() -> None:
    goal = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    # A bit of value nu that should be +1 has probability (1 + nu) / 2.
    assert bitwise_cross_entropy(NU, goal).item() == pytest.approx(-log(0.75 * 0.25 * 0.75 * 0.5) / 4, rel=1e-6)


def test_bitwise_cross_entropy_corrects_a_saturated_bit() -> None:
    pre = torch.tensor([[4.0, -4.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(bitwise_cross_entropy(pre.tanh(), -pre.detach().sign()), pre)
    assert slope[0, 0].item() == pytest.approx(1, abs=1e-3)  # of d/dz log(1 + e^2z) / 2 bits: through tanh alone it is .001
    assert slope[0, 1] == -slope[0, 0]
    clamped = torch.tensor([[1.0, -1.0]], requires_grad=True)
    assert torch.isfinite(bitwise_cross_entropy(clamped, torch.tensor([[-1.0, 1.0]])))


def test_balanced_cross_entropy_value() -> None:
    tags = torch.tensor([[True, False, True], [False, False, True]])
    frequencies = torch.tensor([0.1, 0.5, 0.8])
    # A present tag costs (1 - f) log(1 + e^-s), an absent one f log(1 + e^s).
    first = 0.9 * log(1 + exp(-2)) + 0.5 * log(1 + exp(0)) + 0.2 * log(1 + exp(2))
    second = 0.1 * log(1 + exp(-1)) + 0.5 * log(1 + exp(1)) + 0.2 * log(1 + exp(-1))
    for given in (tags, tags.int(), tags.float()):
        loss = balanced_binary_cross_entropy(NU, given, PROXIES, frequencies, 4)
        assert loss.item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_a_tag_pulls_its_images_towards_its_proxy() -> None:
    nu = torch.zeros(1, 4, requires_grad=True)
    proxies = torch.tensor([[1.0, -1.0, 1.0, 1.0]])
    loss = balanced_binary_cross_entropy(nu, torch.ones(1, 1), proxies, torch.tensor([0.3]), 4)
    (gradient,) = torch.autograd.grad(loss, nu)
    assert torch.equal(-gradient.sign(), proxies)


def test_present_and_absent_images_of_a_tag_weigh_the_same() -> None:
    tags = torch.tensor([[1, 0], [0, 0], [0, 1], [0, 1]])
    frequencies = tag_frequencies(tags)
    assert frequencies.tolist() == [0.25, 0.5]
    nu, proxies = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True), torch.ones(2, 3)
    loss = balanced_binary_cross_entropy(nu, tags, proxies, frequencies, 3)  # at nu = 0 every sigmoid is 1/2
    (gradient,) = torch.autograd.grad(loss, nu)
    assert (gradient != 0).all()
    torch.testing.assert_close(gradient.sum(dim=0), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("loss", BY_CLASS)
@pytest.mark.parametrize("tau", [1.0, 10.0])
def test_gradients_by_class(loss: ByClass, tau: float) -> None:
    nu, labels, proxies = some_batch()
    assert torch.autograd.gradcheck(lambda n, w: loss(n, labels, w, tau), (nu.requires_grad_(), proxies.requires_grad_()))


def test_gradients_by_tag() -> None:
    nu, _, proxies = some_batch()
    tags = torch.tensor(np.random.default_rng(1).random((7, 5)) < 0.3)
    frequencies = tag_frequencies(tags)
    assert torch.autograd.gradcheck(
        lambda n, w: balanced_binary_cross_entropy(n, tags, w, frequencies, 8),
        (nu.requires_grad_(), proxies.requires_grad_()),
    )


@pytest.mark.parametrize("loss", BY_CLASS)
def test_losses_are_invariant_to_a_joint_rotation(loss: ByClass) -> None:
    nu, labels, proxies = some_batch()
    rotation = torch.tensor(random_rotation(6, np.random.default_rng(2)))
    turned = loss(nu @ rotation, labels, proxies @ rotation, 8)
    torch.testing.assert_close(turned, loss(nu, labels, proxies, 8))
    assert abs(turned - loss(nu @ rotation, labels, proxies, 8)) > 0.01  # of only one it does


def test_proxies_of_one_norm_make_a_classifier_of_euclidean_distances() -> None:
    nu, labels, proxies = some_batch()
    distances = torch.cdist(nu, proxies).square() / 2
    metric = torch.nn.functional.cross_entropy(-distances, labels)
    torch.testing.assert_close(proxy_cross_entropy(nu, labels, proxies, tau=6), metric)  # tau = d: the paper's letter


def test_nca_leaves_the_own_class_out_of_the_sum() -> None:
    nu, labels, proxies = some_batch()
    for row in range(len(nu)):
        one = (nu[row : row + 1], labels[row : row + 1], proxies, 8.0)
        torch.testing.assert_close(proxy_cross_entropy(*one), torch.log1p(proxy_nca(*one).exp()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [-1, 1])
def test_losses_are_finite_for_saturated_embeddings_and_large_tau(dtype: torch.dtype, sign: int) -> None:
    proxies = torch.tensor(np.where(np.random.default_rng(3).random((4, 128)) < 0.5, -1, 1))  # whole numbers are fine
    nu = (sign * proxies).to(dtype).requires_grad_()
    labels, tags = torch.arange(4), torch.eye(4)
    losses = [loss(nu, labels, proxies, 1e4) for loss in BY_CLASS]
    losses.append(balanced_binary_cross_entropy(nu, tags, proxies, torch.full((4,), 0.25), 1e4))
    for loss in losses:
        assert loss.dtype == dtype
        (gradient,) = torch.autograd.grad(loss, nu)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    assert (losses[0].item() == 0) == (sign == 1)


def test_autocast_does_not_reduce_the_precision_of_logits() -> None:
    nu, labels, proxies = some_batch(bits=128)
    exact = proxy_cross_entropy(nu.float(), labels, proxies, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(proxy_cross_entropy(nu.float(), labels, proxies, 128), exact)


@pytest.mark.parametrize("loss", BY_CLASS)
def test_wrong_shapes_of_classes_are_refused(loss: ByClass) -> None:
    with pytest.raises(InputError, match=r"of equal bits are needed, not \(2, 2\) and \(3, 1\)"):
        loss(NU, LABELS, PROXIES[:, :1], 4)
    with pytest.raises(InputError, match="one class number for each of 2 images"):
        loss(NU, LABELS[:1], PROXIES, 4)
    with pytest.raises(InputError, match=r"not torch\.float32 of shape"):
        loss(NU, LABELS.float(), PROXIES, 4)
    with pytest.raises(InputError, match="tau must be above 0"):
        loss(NU, LABELS, PROXIES, 0)


def test_wrong_shapes_of_tags_are_refused() -> None:
    with pytest.raises(InputError, match=r"Tags must have shape \(2, 3\) and frequencies \(3,\), not \(2,\) and \(3,\)"):
        balanced_binary_cross_entropy(NU, LABELS, PROXIES, torch.ones(3), 4)
    with pytest.raises(InputError, match="with at least one image"):
        tag_frequencies(torch.zeros(0, 3))
    with pytest.raises(InputError, match="at least 2 proxies"):
        proxy_nca(NU, torch.zeros(2, dtype=torch.int64), PROXIES[:1], 4)
