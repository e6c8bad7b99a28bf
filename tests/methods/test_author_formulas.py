"""Losses against NumPy transcriptions of their authors' formulas."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.methods import HashingMethod, TrainingData, build_method
from proxyhash.methods.csq import draw_centers
from proxyhash.methods.hashnet import HashNet
from proxyhash.methods.hyp2 import code_cosine
from proxyhash.methods.nested import Nested, distillation_loss
from proxyhash.methods.relahash import draw_centroids
from proxyhash.models.heads import BatchNormHashHead, BatchNormHead, HashHead, HeadConfig, LinearHead

Doubles = NDArray[np.float64]
IMAGES, CLASSES, BITS = 12, 5, 8
RANDOM = np.random.default_rng(0)
U = RANDOM.standard_normal((IMAGES, BITS))
NU = np.tanh(U)
LABELS = np.arange(IMAGES) % CLASSES
ONE_HOT = np.eye(CLASSES)[LABELS]
TAGS = RANDOM.random((IMAGES, CLASSES)) < 0.4
TAGS[:, 0] |= ~TAGS.any(1)


def method(name: str, *, tags: bool = False, **settings: Any) -> HashingMethod:
    labels = TAGS if tags else LABELS
    return build_method(name, TrainingData.from_arrays(BITS, None, labels), settings).double()


def loss(made: HashingMethod, embeddings: Doubles, *, tags: bool = False) -> float:
    targets = torch.from_numpy(TAGS.astype(np.float64) if tags else LABELS)
    return float(made(torch.from_numpy(embeddings), targets, torch.arange(IMAGES)).detach())


def array(tensor: Tensor | nn.Module | None) -> Doubles:
    assert isinstance(tensor, Tensor)
    return tensor.detach().numpy().astype(np.float64)


def unit(rows: Doubles) -> Doubles:
    found: Doubles = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def softmax(logits: Doubles) -> Doubles:
    powers = np.exp(logits)
    found: Doubles = powers / powers.sum(1, keepdims=True)
    return found


def sigmoid(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def quantization(embeddings: Doubles) -> float:
    return float(np.square(np.abs(embeddings) - 1).mean())


def mdsh_centers_loss(made: HashingMethod) -> float:
    p = softmax(np.sqrt(BITS) * unit(NU) @ unit(array(made.get_buffer("centers"))).T)
    return float(-(ONE_HOT * np.log(p) + (1 - ONE_HOT) * np.log(1 - p)).mean())


def test_mdsh_is_a_binary_cross_entropy_of_a_softmax_plus_quantization() -> None:
    made = method("mdsh", quantization=0.3)
    assert loss(made, NU) == pytest.approx(mdsh_centers_loss(made) + 0.3 * quantization(NU))
    assert loss(method("mdsh"), NU) == pytest.approx(mdsh_centers_loss(made) + 1e-4 * quantization(NU))


def test_mdsh_softmax_is_the_cross_entropy_of_scaled_cosines() -> None:
    made = method("mdsh", loss="softmax", pairs=0.0, quantization=0.0, batch_norm=False)
    p = softmax(np.sqrt(BITS) * unit(NU) @ unit(array(made.get_buffer("centers"))).T)
    assert loss(made, NU) == pytest.approx(float(-np.log((ONE_HOT * p).sum(1)).mean()))
    assert isinstance(made.build_head(HeadConfig(3, BITS)), HashHead)
    assert isinstance(method("mdsh").build_head(HeadConfig(3, BITS)), BatchNormHashHead)


def test_mdsh_adds_similar_pairs_with_the_momentum_encoder_from_an_epoch_on() -> None:
    made = method("mdsh", quantization=0.0, pairs=0.7, pairs_from=2)
    seen = np.array([0, 5, 10, 1, 6, 2, 3])  # the others were in no batch yet
    slow = np.random.default_rng(1).standard_normal((IMAGES, BITS))
    made.observe(torch.from_numpy(slow[:5]), torch.arange(5))  # replaced by the next ones, or seen
    made.get_buffer("bank").zero_()
    made.observe(torch.from_numpy(slow[seen]), torch.from_numpy(seen))
    head = made.build_head(HeadConfig(3, BITS))
    without = loss(made, NU)
    assert without == pytest.approx(mdsh_centers_loss(made))
    made.on_epoch_end(lambda: torch.zeros(0), head)
    assert loss(made, NU) == pytest.approx(without)
    made.on_epoch_end(lambda: torch.zeros(0), head)
    similar = LABELS[:, None] == LABELS[seen]
    pairs = np.log(1 + np.exp(0.5 * (1 - unit(NU) @ unit(slow[seen]).T)))
    assert loss(made, NU) == pytest.approx(without + 0.7 * float(pairs[similar].mean()))


def test_momentum_encoder_of_mdsh_can_be_switched_off() -> None:
    assert method("mdsh").momentum == 0.9
    assert method("mdsh", momentum=0.5).momentum == 0.5
    assert method("mdsh", pairs=0.0).momentum is None


def classifier_logits(made: HashingMethod) -> Doubles:
    return (NU + 1) / 2 @ array(made.get_parameter("classifier.weight")).T + array(made.get_parameter("classifier.bias"))


@pytest.mark.parametrize("tags", [False, True])
def test_ssdh_is_a_cross_entropy_of_an_image_and_half_of_each_further_term(tags: bool) -> None:
    made, a = method("ssdh", tags=tags), (NU + 1) / 2
    logits = classifier_logits(made)
    if tags:
        p = sigmoid(logits)
        crossed = -np.where(TAGS, np.log(p), np.log(1 - p)).sum() / IMAGES
    else:
        crossed = -np.log((softmax(logits) * ONE_HOT).sum(1)).mean()
    further = -0.5 * np.square(a - 0.5).mean() + 0.5 * np.square(a.mean(1) - 0.5).mean()
    assert loss(made, NU, tags=tags) == pytest.approx(float(crossed + further))
    assert loss(method("bhc", tags=tags), NU, tags=tags) == pytest.approx(float(crossed))
    if tags:
        means = method("bhc", tags=True, tag_loss="mean")
        assert loss(means, NU, tags=True) == pytest.approx(float(crossed) / CLASSES)


@pytest.mark.parametrize("name", ["bhc", "ssdh"])
def test_classifier_starts_and_learns_as_in_the_authors_files(name: str) -> None:
    data = TrainingData.from_arrays(64, None, np.arange(200) % 100)
    made = build_method(name, data, {})
    assert float(made.get_parameter("classifier.weight").detach().std()) == pytest.approx(0.2, rel=0.05)
    assert (made.get_parameter("classifier.bias") == 0).all()
    assert made.lr_factors() == {"classifier.weight": 10.0, "classifier.bias": 10.0}
    plain = build_method(name, data, {"classifier_lr": 1.0, "classifier_std": None})
    assert float(plain.get_parameter("classifier.weight").detach().abs().max()) <= 1 / 8
    assert set(plain.lr_factors().values()) == {1.0}


@pytest.mark.parametrize("tags", [False, True])
def test_csq_is_a_cross_entropy_plus_pairs_of_two_halves_plus_quantization(tags: bool) -> None:
    made = method("csq", tags=tags)
    centers, coin = array(made.get_buffer("centers")), array(made.get_buffer("coin"))
    labels = (TAGS if tags else ONE_HOT).astype(np.float64)
    votes = labels @ centers
    wanted = np.where(votes == 0, coin, np.sign(votes))
    p, bit = (NU + 1) / 2, (wanted + 1) / 2
    crossed = -(bit * np.log(p) + (1 - bit) * np.log(1 - p)).mean()
    first, second = slice(0, IMAGES // 2), slice(IMAGES // 2, IMAGES)
    similar = labels[first] @ labels[second].T > 0
    theta = 10 / BITS * NU[first] @ NU[second].T
    pairs = (np.log(1 + np.exp(theta)) - similar * theta).mean()
    assert loss(made, NU, tags=tags) == pytest.approx(float(crossed + 0.2 * pairs + 0.05 * quantization(NU)), rel=1e-6)
    plain = method("csq", tags=tags, pairs=0.0, quantization=0.0)
    assert loss(plain, NU, tags=tags) == pytest.approx(float(crossed), rel=1e-6)


def distances(centers: NDArray[np.float32]) -> Doubles:
    products = (centers @ centers.T).astype(np.float64)
    found: Doubles = (centers.shape[1] - products[np.triu_indices(len(centers), 1)]) / 2
    return found


@pytest.mark.parametrize(("bits", "least"), [(16, 2), (32, 8)])
def test_centers_of_csq_are_as_far_apart_as_those_that_its_authors_ship(bits: int, least: int) -> None:
    centers = draw_centers(100, bits, "balanced", np.random.default_rng(3))
    assert centers.shape == (100, bits)
    assert (np.abs(centers) == 1).all()
    assert (centers.sum(1) == 0).all()
    assert distances(centers).min() >= least
    assert distances(centers).mean() >= bits / 2
    assert distances(draw_centers(100, bits, "random", np.random.default_rng(3))).min() < least


def test_few_centers_of_csq_are_hadamard_rows_and_complements() -> None:
    assert set(distances(draw_centers(16, 16, "balanced", np.random.default_rng(0)))) == {8.0}
    assert set(distances(draw_centers(32, 16, "balanced", np.random.default_rng(0)))) == {8.0, 16.0}


@pytest.mark.parametrize("tags", [False, True])
def test_orthohash_is_a_cross_entropy_of_cosines_with_normalized_labels(tags: bool) -> None:
    made = method("orthohash", tags=tags)
    labels = (TAGS if tags else ONE_HOT).astype(np.float64)
    cosines = unit(U) @ unit(array(made.get_buffer("codes"))).T
    p = softmax(8 * (cosines - 0.2 * labels))
    expected = -(labels / labels.sum(1, keepdims=True) * np.log(p)).sum(1).mean()
    assert loss(made, U, tags=tags) == pytest.approx(float(expected))


def test_orthohash_leaves_out_images_without_tags() -> None:
    made = method("orthohash", tags=True)
    nothing = torch.zeros(IMAGES, CLASSES, dtype=torch.float64)
    assert float(made(torch.from_numpy(U), nothing, torch.arange(IMAGES))) == 0


def test_head_of_orthohash_normalizes_a_linear_map_without_bias() -> None:
    head = method("orthohash").build_head(HeadConfig(3, BITS)).double()
    assert isinstance(head, BatchNormHead)
    assert not isinstance(head, BatchNormHashHead)
    features = np.random.default_rng(0).standard_normal((IMAGES, 3))
    linear, norm = head.layers
    assert isinstance(linear, nn.Linear)
    assert {name for name, _ in linear.named_parameters()} == {"weight"}
    assert isinstance(norm, nn.BatchNorm1d)
    projected = features @ array(linear.weight).T
    expected = (projected - projected.mean(0)) / np.sqrt(projected.var(0) + norm.eps)
    np.testing.assert_allclose(array(head(torch.from_numpy(features))), expected, atol=1e-6)
    assert isinstance(method("orthohash", batch_norm=False).build_head(HeadConfig(3, BITS)), HashHead)


def test_dpn_sums_the_hinges_of_all_tags() -> None:
    made = method("dpn", tags=True, margin=0.8)
    centers = array(made.get_buffer("centers"))
    hinges = np.maximum(0, 0.8 - U[:, None] * centers).mean(2)  # (images, tags)
    assert loss(made, U, tags=True) == pytest.approx(float((hinges * TAGS).sum(1).mean()))
    votes = TAGS @ centers
    wanted = np.where(votes == 0, array(made.get_buffer("coin")), np.sign(votes))
    vote = method("dpn", tags=True, margin=0.8, tag_loss="vote")
    assert loss(vote, U, tags=True) == pytest.approx(float(np.maximum(0, 0.8 - U * wanted).mean()))


def test_greedyhash_classifies_signs_without_a_bias() -> None:
    made = method("greedyhash")
    logits = np.sign(U) @ array(made.get_parameter("classifier.weight")).T
    crossed = -np.log((softmax(logits) * ONE_HOT).sum(1)).mean()
    assert loss(made, U) == pytest.approx(float(crossed + 0.1 * (np.abs(np.abs(U) - 1) ** 3).mean()))
    assert {name for name, _ in made.named_parameters()} == {"classifier.weight"}
    assert {name for name, _ in method("greedyhash", bias=True).named_parameters()} == {
        "classifier.weight",
        "classifier.bias",
    }


@pytest.mark.parametrize("tags", [False, True])
def test_hashnet_is_a_likelihood_with_a_scale_that_grows_every_200_steps(tags: bool) -> None:
    made = method("hashnet", tags=tags)
    assert isinstance(made, HashNet)
    assert made.samples_per_class == 0
    labels = (TAGS if tags else ONE_HOT).astype(np.float64)
    different = ~np.eye(IMAGES, dtype=bool)
    similar = labels @ labels.T > 0

    def expected(step: int) -> float:
        h = np.tanh(np.sqrt(1 + 0.005 * (step - step % 200)) * U)
        theta = 10 / BITS * h @ h.T
        losses = np.log(1 + np.exp(theta)) - similar * theta
        return float(losses[similar & different].mean() + losses[~similar & different].mean())

    assert loss(made, U, tags=tags) == pytest.approx(expected(1))
    for step in (199, 200, 201, 399, 400, 2000):
        made.elapsed.fill_(step - 1)
        assert loss(made, U, tags=tags) == pytest.approx(expected(step))
    made.on_epoch_end(lambda: torch.zeros(0), made.build_head(HeadConfig(3, BITS)))
    assert int(made.elapsed) == 2000  # epochs do not count


@pytest.mark.parametrize("tags", [False, True])
def test_hyp2_is_hinges_of_cosines_with_proxies_plus_irrelevant_pairs_of_tagged_images(tags: bool) -> None:
    made = method("hyp2", tags=tags)
    zeta = 0.0  # 5 classes: the words of [8, 3, 4] have the cosine 1 - 2 * 4 / 8
    labels = (TAGS if tags else ONE_HOT).astype(bool)
    cosines = unit(U) @ unit(array(made.get_parameter("weights"))).T
    expected = (1 - cosines[labels]).mean() + np.maximum(0, cosines[~labels] - zeta).mean()
    assert loss(method("hyp2", tags=tags, beta=0.0), U, tags=tags) == pytest.approx(float(expected))
    several = TAGS[TAGS.sum(1) > 1].astype(int)
    irrelevant = several @ several.T == 0
    assert irrelevant.any()
    pairs = unit(U[TAGS.sum(1) > 1]) @ unit(U[TAGS.sum(1) > 1]).T
    added = 0.5 * np.maximum(0, pairs[irrelevant] - zeta).mean() if tags else 0.0
    assert loss(made, U, tags=tags) == pytest.approx(float(expected + added))


def test_threshold_of_hyp2_can_be_set() -> None:
    made = method("hyp2", threshold=-0.3)
    cosines = unit(U) @ unit(array(made.get_parameter("weights"))).T
    own = ONE_HOT.astype(bool)
    expected = (1 - cosines[own]).mean() + np.maximum(0, cosines[~own] + 0.3).mean()
    assert loss(made, U) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("classes", "bits", "cosine"),
    [
        (10, 64, -0.03125),
        (20, 48, 0.0),
        (21, 16, 0.0),
        (21, 36, 1 / 18),
        (38, 12, 1 / 3),
        (80, 32, 0.125),
        (100, 48, 1 / 12),
    ],
)
def test_threshold_of_hyp2_is_that_of_the_authors_table(classes: int, bits: int, cosine: float) -> None:
    assert code_cosine(classes, bits) == pytest.approx(cosine)


def test_threshold_of_hyp2_is_defined_for_more_classes_than_codes() -> None:
    assert code_cosine(1, 8) == -1
    assert code_cosine(100, 4) == 0.5


def test_head_and_proxies_of_hyp2_are_those_of_the_authors() -> None:
    made = build_method("hyp2", TrainingData.from_arrays(64, None, np.arange(200) % 50), {"proxy_lr": 2.0})
    assert type(made.build_head(HeadConfig(3, 64))) is LinearHead
    assert float(made.get_parameter("weights").detach().std()) == pytest.approx(0.2, rel=0.05)
    assert made.lr_factors() == {"weights": 2.0}


@pytest.mark.parametrize("tags", [False, True])
def test_relahash_is_a_cross_entropy_of_positions_relative_to_the_batch(tags: bool) -> None:
    made = method("relahash", tags=tags)
    labels = (TAGS if tags else ONE_HOT).astype(np.float64)
    centered = U - U.mean()
    positions = np.sqrt(IMAGES / 16) * centered / np.sqrt((centered**2).sum())
    p = softmax(8 * (positions @ unit(array(made.get_buffer("centroids"))).T - 0.5 * labels))
    expected = -(labels / labels.sum(1, keepdims=True) * np.log(p)).sum(1).mean()
    assert loss(made, U, tags=tags) == pytest.approx(float(expected), rel=1e-6)
    assert isinstance(made.build_head(HeadConfig(3, BITS)), BatchNormHead)


def test_relahash_of_the_authors_batches_has_their_scale() -> None:
    made = build_method("relahash", TrainingData.from_arrays(BITS, None, np.arange(16) % 2), {"margin": 0.0}).double()
    z = np.random.default_rng(2).standard_normal((16, BITS))
    positions = (z - z.mean()) / np.linalg.norm(z - z.mean())
    p = softmax(8 * positions @ unit(array(made.get_buffer("centroids"))).T)
    labels = np.arange(16) % 2
    found = made(torch.from_numpy(z), torch.from_numpy(labels), torch.arange(16))
    assert float(found) == pytest.approx(float(-np.log(p[np.arange(16), labels]).mean()), rel=1e-6)


def test_relahash_spreads_images_without_tags_over_all() -> None:
    made = method("relahash", tags=True)
    positions = np.sqrt(IMAGES / 16) * (U - U.mean()) / np.linalg.norm(U - U.mean())
    p = softmax(8 * positions @ unit(array(made.get_buffer("centroids"))).T)
    nothing = torch.zeros(IMAGES, CLASSES, dtype=torch.float64)
    found = made(torch.from_numpy(U), nothing, torch.arange(IMAGES))
    assert float(found) == pytest.approx(float(-np.log(p).mean()), rel=1e-6)


def test_centroids_of_relahash_are_farther_apart_than_random_ones() -> None:
    drawn = draw_centroids(10, 32, np.random.default_rng(0))
    assert drawn.shape == (10, 32)
    assert (np.abs(drawn) == 1).all()
    assert distances(drawn).min() >= 14
    np.testing.assert_array_equal(drawn, draw_centroids(10, 32, np.random.default_rng(0)))
    assert distances(draw_centroids(2, 32, np.random.default_rng(0))).min() >= 0.61 * 32
    assert distances(draw_centroids(5, 2, np.random.default_rng(0))).min() == 0  # there are 4 codes


def distillation(short: Doubles, long: Doubles) -> float:
    difference = unit(short @ short.T) - unit(long @ long.T)
    return float((difference**2).sum() / len(short) ** 2)


@pytest.mark.parametrize("tags", [False, True])
def test_nested_is_csq_of_every_length_plus_distillation_from_the_next(tags: bool) -> None:
    made = method("nested", tags=tags, shortest=2, distill=0.7)
    assert isinstance(made, Nested)
    assert made.lengths == [2, 4, 8]
    expected = []
    for number, bits in enumerate(made.lengths):
        centers, nu = array(made.get_buffer(f"bases.{number}.centers")), np.tanh(U[:, :bits])
        votes = (TAGS if tags else ONE_HOT) @ centers + 0.5 * array(made.get_buffer(f"bases.{number}.coin"))
        bit = votes > 0
        crossed = -np.where(bit, np.log((1 + nu) / 2), np.log((1 - nu) / 2)).mean()
        expected.append(crossed + 1e-4 * quantization(nu))
    expected += [0.7 * distillation(U[:, :2], U[:, :4]), 0.7 * distillation(U[:, :4], U)]
    assert loss(made, U, tags=tags) == pytest.approx(sum(expected) / 3, rel=1e-6)


def test_nested_code_of_one_length_is_csq() -> None:
    plain = method("csq", pairs=0.0, quantization=1e-4)
    assert loss(method("nested"), U) == pytest.approx(loss(plain, NU))


def test_long_codes_of_nested_learn_nothing_from_the_distillation() -> None:
    outputs = torch.from_numpy(U.copy()).requires_grad_()
    distillation_loss(outputs[:, :4], outputs).backward()
    found = array(outputs.grad)
    assert (found[:, 4:] == 0).all()
    step = np.zeros_like(U)
    step[3, 1] = 1e-6
    rise = distillation((U + step)[:, :4], U) - distillation((U - step)[:, :4], U)
    assert found[3, 1] == pytest.approx(rise / 2e-6, rel=1e-4)
