"""What every exported loss module promises, and the value of each by hand."""

from collections.abc import Callable
from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from proxyhash import InputError, design_proxies, losses
from proxyhash.losses import (
    AveragePrecisionLoss,
    BitwiseProxyLoss,
    CosineProxyLoss,
    HammingTripletLoss,
    MutualInformationLoss,
    PairwiseLoss,
    PolarizationLoss,
    ProxyLoss,
    ProxyNCALoss,
    QuantizationLoss,
    TagProxyLoss,
    TripletHingeLoss,
)

CLASSES, BITS, IMAGES = 3, 8, 12
CODES = np.where(np.random.default_rng(0).random((CLASSES, BITS)) < 0.5, -1, 1)

MODULES: dict[str, Callable[[], nn.Module]] = {
    "AveragePrecisionLoss": AveragePrecisionLoss,
    "BitwiseProxyLoss": lambda: BitwiseProxyLoss(CODES),
    "CosineProxyLoss": lambda: CosineProxyLoss(CODES),
    "HammingTripletLoss": HammingTripletLoss,
    "MutualInformationLoss": MutualInformationLoss,
    "PairwiseLoss": PairwiseLoss,
    "PolarizationLoss": lambda: PolarizationLoss(CODES),
    "ProxyLoss": lambda: ProxyLoss(CODES),
    "ProxyNCALoss": lambda: ProxyNCALoss(CODES),
    "QuantizationLoss": QuantizationLoss,
    "TagProxyLoss": lambda: TagProxyLoss(CODES, [0.2, 0.5, 0.6]),
    "TripletHingeLoss": TripletHingeLoss,
}
OF_TAGS = ("AveragePrecisionLoss", "HammingTripletLoss", "MutualInformationLoss", "PairwiseLoss", "TripletHingeLoss")
PROXY_MODULES = [name for name in MODULES if "Proxy" in name or name == "PolarizationLoss"]


def a_batch(name: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(1)
    nu = torch.tensor(np.tanh(random.standard_normal((IMAGES, BITS))), dtype=dtype)
    if name == "TagProxyLoss":
        return nu, torch.tensor(random.random((IMAGES, CLASSES)) < 0.4)
    return nu, torch.tensor(np.arange(IMAGES) % CLASSES)


def test_every_exported_module_is_tested_here() -> None:
    exported = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)}
    assert exported == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_is_a_finite_scalar_and_its_gradient_reaches_the_embeddings(name: str, dtype: torch.dtype) -> None:
    nu, labels = a_batch(name, dtype)
    value = MODULES[name]()(nu.requires_grad_(), labels)
    assert value.shape == ()
    assert value.dtype == dtype
    assert value.isfinite()
    value.backward()
    assert nu.grad is not None
    assert nu.grad.isfinite().all()
    assert (nu.grad != 0).any(dim=1).all()


@pytest.mark.parametrize("name", MODULES)
def test_order_of_the_batch_does_not_matter(name: str) -> None:
    nu, labels = a_batch(name)
    order = torch.tensor(np.random.default_rng(2).permutation(IMAGES))
    loss = MODULES[name]()
    torch.testing.assert_close(loss(nu[order], labels[order]), loss(nu, labels))


@pytest.mark.parametrize("name", MODULES)
def test_gradients_match_finite_differences(name: str) -> None:
    nu, labels = a_batch(name)
    loss = MODULES[name]()
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), nu.requires_grad_())


@pytest.mark.parametrize("name", MODULES)
def test_half_precision_is_computed_in_single_precision(name: str) -> None:
    nu, labels = a_batch(name, torch.bfloat16)
    loss = MODULES[name]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(nu, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(nu.float(), labels), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "QuantizationLoss"])
def test_wrong_labels_are_one_sentence(name: str) -> None:
    nu, labels = a_batch(name)
    loss = MODULES[name]()
    wrong: list[object] = [labels[:-1], np.asarray(labels), torch.rand(IMAGES)]
    wrong += [] if name == "TagProxyLoss" else [labels == 0]
    for given in wrong:
        with pytest.raises(InputError, match=r"^Labels must be [^\n]+, not [^\n]+\.$"):
            loss(nu, given)


@pytest.mark.parametrize("name", MODULES)
def test_wrong_embeddings_are_one_sentence(name: str) -> None:
    nu, labels = a_batch(name)
    for wrong in (nu[0], nu.long(), nu.numpy()):
        with pytest.raises(InputError, match=r"^Embeddings must be a tensor of real numbers \(images, bits\), not .+\.$"):
            MODULES[name]()(wrong, labels)


@pytest.mark.parametrize("name", PROXY_MODULES)
def test_embeddings_of_another_length_are_one_sentence(name: str) -> None:
    nu, labels = a_batch(name)
    with pytest.raises(InputError, match=r"^The proxies have 8 bits, and the embeddings 7\.$"):
        MODULES[name]()(nu[:, 1:], labels)


@pytest.mark.parametrize("name", [name for name in PROXY_MODULES if name != "TagProxyLoss"])
@pytest.mark.parametrize("outside", [-100, -1, CLASSES])  # torch ignores -100, and -1 is the last class of an index
def test_classes_outside_the_proxies_are_one_sentence(name: str, outside: int) -> None:
    nu, labels = a_batch(name)
    labels[3] = outside
    with pytest.raises(InputError, match=rf"^Labels must be class numbers from 0 to 2, not {outside}\.$"):
        MODULES[name]()(nu, labels)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "TagProxyLoss"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_classes_of_any_integer_type_are_equal(name: str, dtype: torch.dtype) -> None:
    nu, labels = a_batch(name)
    loss = MODULES[name]()
    assert torch.equal(loss(nu, labels.to(dtype)), loss(nu, labels))


@pytest.mark.parametrize("name", [*OF_TAGS, "TagProxyLoss"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_tags_of_any_type_are_equal(name: str, dtype: torch.dtype) -> None:
    nu, tags = a_batch("TagProxyLoss")
    loss = TripletHingeLoss(graded=True) if name == "TripletHingeLoss" else MODULES[name]()
    assert torch.equal(loss(nu, tags.to(dtype)), loss(nu, tags.double()))


@pytest.mark.parametrize("name", PROXY_MODULES)
def test_proxies_are_fixed_and_part_of_the_state(name: str) -> None:
    loss = MODULES[name]()
    assert list(loss.parameters()) == []
    assert "proxies" in loss.state_dict()
    assert f"classes={CLASSES}, bits={BITS}" in repr(loss)


@pytest.mark.parametrize("module", [ProxyLoss, ProxyNCALoss, CosineProxyLoss])
def test_proxies_are_trained_if_they_are_learned_or_the_user_says_so(module: type[ProxyLoss]) -> None:
    nu, labels = a_batch("ProxyLoss")
    learned = design_proxies(CLASSES, BITS, "learned")
    assert not list(module(learned, trainable=False).parameters())
    for loss in (module(learned), module(CODES, trainable=True)):
        (proxies,) = loss.parameters()
        loss(nu, labels).backward()
        assert proxies.grad is not None
        assert (proxies.grad != 0).any()
    assert np.array_equal(module(learned).proxies.detach().numpy(), learned.weights)


def test_proxies_may_be_a_set_an_array_a_list_or_a_tensor() -> None:
    nu, labels = a_batch("ProxyLoss")
    designed = design_proxies(CLASSES, BITS, "code")
    expected = ProxyLoss(designed)(nu, labels)
    for given in (designed.weights, designed.weights.tolist(), torch.from_numpy(designed.weights.copy())):
        torch.testing.assert_close(ProxyLoss(given)(nu, labels), expected)


def test_proxies_of_the_user_are_copied() -> None:
    given = torch.ones(2, 4)
    loss = ProxyLoss(given)
    given.zero_()
    assert (loss.proxies == 1).all()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: ProxyLoss([1.0, -1.0]), r"^Proxies must be a ProxySet or a matrix \(classes, bits\), not .+\.$"),
        (lambda: ProxyLoss(CODES, tau=0), r"^tau must be above 0, not 0\.$"),
        (lambda: BitwiseProxyLoss([[0.5, 1.0]]), r"^BitwiseProxyLoss needs proxies of \+1 and -1, such as .+\.$"),
        (lambda: PolarizationLoss([[0.5, 1.0]]), r"^PolarizationLoss needs proxies of \+1 and -1, such as .+\.$"),
        (lambda: PolarizationLoss(CODES, margin=0), r"^margin must be above 0, not 0\.$"),
        (lambda: TagProxyLoss(CODES, [0.5]), r"^Frequencies must be a fraction from 0 to 1 for each of 3 tags, .+\.$"),
        (lambda: TagProxyLoss(CODES, [0.5, 2, 1]), r"^Frequencies must be a fraction from 0 to 1 for each of 3 tags, .+\.$"),
        (lambda: HammingTripletLoss(-1), r"^The margin may not be negative\.$"),
        (lambda: TripletHingeLoss(-1), r"^The margin may not be negative\.$"),
        (lambda: PairwiseLoss(0), r"^scale must be above 0, not 0\.$"),
    ],
)
def test_wrong_settings_are_one_sentence(build: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build()


# Values by hand: two bits, three images, of which the first two are of one class.
NU = torch.tensor([[0.5, -1.0], [1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1])
PROXIES = [[1, -1], [-1, 1]]
# Inner products with the proxies: (1.5, -1.5), (1, -1), (-1, 1). Those of pairs: 0.5, -0.75, -0.5; so distances in bits
# are (0, 1) 0.75, (0, 2) 1.375, (1, 2) 1.25.


def softplus(x: float) -> float:
    return log(1 + exp(x))


def test_proxy_loss_by_hand() -> None:
    # tau = 4: logits are 2 w.nu, and the loss is the softplus of the other's minus the own.
    expected = (softplus(-6) + softplus(-4) + softplus(-4)) / 3
    assert ProxyLoss(PROXIES, tau=4)(NU, LABELS).item() == pytest.approx(expected)
    assert ProxyNCALoss(PROXIES, tau=4)(NU, LABELS).item() == pytest.approx((-6 - 4 - 4) / 3)


def test_tau_is_6_for_classes_and_a_half_for_tags() -> None:
    assert ProxyLoss(PROXIES)(NU, LABELS).item() == pytest.approx((softplus(-9) + 2 * softplus(-6)) / 3)
    at_zero = TagProxyLoss([[1, 1]], [0.25])(torch.ones(1, 2), torch.ones(1, 1))
    assert at_zero.item() == pytest.approx(0.75 * softplus(-0.5))


def test_cosine_loss_by_hand() -> None:
    first, second = 1.5 / sqrt(1.25 * 2), 1 / sqrt(2)
    expected = (softplus(-2 * first) + softplus(-2 * second) + softplus(-2)) / 3
    assert CosineProxyLoss(PROXIES, tau=1)(NU, LABELS).item() == pytest.approx(expected)


def test_bitwise_losses_by_hand() -> None:
    probabilities = 0.75 * 1 * 1 * 0.5 * 0.75 * 0.75
    assert BitwiseProxyLoss(PROXIES)(NU, LABELS).item() == pytest.approx(-log(probabilities) / 6)
    assert PolarizationLoss(PROXIES)(NU, LABELS).item() == pytest.approx((0.5 + 0 + 0 + 1 + 0.5 + 0.5) / 6)
    assert PolarizationLoss(PROXIES, margin=2)(NU, LABELS).item() == pytest.approx((1.5 + 1 + 1 + 2 + 1.5 + 1.5) / 6)


def test_tag_loss_by_hand() -> None:
    tags = torch.tensor([[1, 0], [1, 1], [0, 1]])
    # tau = 2: logits are w.nu. A present tag costs (1 - f) softplus(-s), an absent one f softplus(s).
    first = 0.75 * softplus(-1.5) + 0.5 * softplus(-1.5)
    second = 0.75 * softplus(-1) + 0.5 * softplus(1)
    third = 0.25 * softplus(-1) + 0.5 * softplus(-1)
    loss = TagProxyLoss(PROXIES, [0.25, 0.5], tau=2)
    assert loss(NU, tags).item() == pytest.approx((first + second + third) / 3)


def test_triplet_losses_by_hand() -> None:
    # Triplets (0, 1, 2) and (1, 0, 2).
    assert HammingTripletLoss(1)(NU, LABELS).item() == pytest.approx((softplus(0.375) + softplus(0.5)) / 2)
    assert HammingTripletLoss()(NU, LABELS).item() == pytest.approx((softplus(-0.5) + softplus(-0.375)) / 2)
    assert TripletHingeLoss(1)(NU, LABELS).item() == pytest.approx((0.375 + 0.5) / 2)
    assert TripletHingeLoss(0.5)(NU, LABELS).item() == pytest.approx((0.375 + 0.5) / 2)  # half of two bits


def test_graded_triplet_loss_by_hand() -> None:
    tags = torch.tensor([[1, 1], [1, 1], [1, 0]])
    # Only graded levels differ: 0 and 1 share two tags, each shares one with 2. The weights are 2^2 - 2^1.
    assert TripletHingeLoss(1)(NU, tags).item() == 0
    assert TripletHingeLoss(1, graded=True)(NU, tags).item() == pytest.approx((2 * 0.375 + 2 * 0.5) / 4)


def test_pairwise_loss_by_hand() -> None:
    similar = softplus(-0.25)
    dissimilar = softplus(-0.375), softplus(-0.25)
    assert PairwiseLoss()(NU, LABELS).item() == pytest.approx((similar + sum(dissimilar)) / 3)
    assert PairwiseLoss(balanced=True)(NU, LABELS).item() == pytest.approx(similar + sum(dissimilar) / 2)
    assert PairwiseLoss(2)(NU[:2], LABELS[:2]).item() == pytest.approx(softplus(-1))


def test_histogram_losses_by_hand() -> None:
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]])
    labels = torch.tensor([0, 0, 1, 1])
    # Image 0: similar at 1, others at 1 and 2. Image 1: similar at 1, others at 0 and 1. Images 2 and 3 mirror 1 and 0.
    entropy = -(2 / 3) * log(2 / 3) - (1 / 3) * log(1 / 3)
    information = entropy - (2 / 3) * log(2)
    assert MutualInformationLoss()(corners, labels).item() == pytest.approx(-information, rel=1e-5)
    # AP_r of image 0: (0 + 1 + 1) / (0 + 2 + 1); of image 1: (0 + 1 + 1) / (1 + 3 + 1).
    assert AveragePrecisionLoss()(corners, labels).item() == pytest.approx(1 - (2 / 3 + 2 / 5) / 2)


def test_quantization_loss_by_hand_needs_no_labels() -> None:
    expected = (0.25 + 0 + 0 + 1 + 0.25 + 0.25) / 6
    assert QuantizationLoss()(NU).item() == pytest.approx(expected)
    assert QuantizationLoss()(NU, LABELS).item() == pytest.approx(expected)
