"""SHC and CRH against their authors' formulas, and what their centers are made of."""

from itertools import product

import numpy as np
import pytest
import torch

from helpers.method_losses import BITS, COUNT, FEATURES, NAMES, TAGS, embeddings, small_data, targets
from proxyhash.methods import HashingMethod, TrainingData, build_method
from proxyhash.methods.crh import (
    Crh,
    assignment_costs,
    class_mean_signs,
    compose_centers,
    draw_codebook,
    greedy_assignment,
)
from proxyhash.methods.shc import (
    Shc,
    ShcSettings,
    add_confusion,
    center_distances,
    gilbert_varshamov_distance,
    normalize_confusion,
    semantic_centers,
)
from proxyhash.models.heads import HeadConfig
from proxyhash.proxies import design_proxies
from proxyhash.utils.errors import InputError

# What images of three classes are taken for, without their own class; the diagonal is not read.
MISTAKEN = np.array([[0.9, 0.75, 0.25], [0.5, 0.1, 0.5], [0.25, 0.75, 0.3]])
# (S + S') / 2 has the rows (0, 5/8, 1/4), (5/8, 0, 5/8) and (1/4, 5/8, 0), of the means 7/24, 10/24 and 7/24.
SIMILARITY = np.array([[1, 1, -0.125], [0.5, 1, 0.5], [-0.125, 1, 1]])


def hamming_distances(centers: np.ndarray) -> np.ndarray:
    distances: np.ndarray = (centers.shape[1] - centers @ centers.T) / 2
    return distances


def test_similarity_of_shc_is_what_a_class_is_taken_for() -> None:
    sums = np.zeros((3, 3))
    add_confusion(sums, np.log(MISTAKEN) + np.array([[3.0], [0.0], [-5.0]]), np.array([0, 1, 2]))
    np.testing.assert_allclose(sums, np.where(np.eye(3), 0, MISTAKEN))
    np.testing.assert_allclose(normalize_confusion(sums), SIMILARITY)


def test_predictions_of_several_images_are_summed() -> None:
    sums, logits = np.zeros((3, 3)), np.log(MISTAKEN[[0, 1, 0]])
    add_confusion(sums, logits, np.array([0, 1, 0]))
    np.testing.assert_allclose(sums, np.array([[0, 1.5, 0.5], [0.5, 0, 0.5], [0, 0, 0]]))


def test_classes_that_are_taken_for_all_others_alike_are_equally_similar() -> None:
    np.testing.assert_allclose(normalize_confusion(1 - np.eye(5)), 0.25 + 0.75 * np.eye(5))
    np.testing.assert_array_equal(normalize_confusion(np.zeros((3, 3))), np.eye(3))  # no image at all


@pytest.mark.parametrize(("bits", "distance"), [(4, 1), (16, 4), (32, 10), (48, 17)])
def test_distance_of_shc_is_the_first_whose_balls_cover_the_cube(bits: int, distance: int) -> None:
    words = np.array([[bit >> k & 1 for k in range(bits)] for bit in range(2**bits)]).sum(1) if bits <= 16 else None
    assert gilbert_varshamov_distance(100, bits) == distance
    if words is not None:
        assert 100 * (words < distance).sum() >= 2**bits > 100 * (words < distance - 1).sum()


def shc_loss(centers: np.ndarray, similarity: np.ndarray, spread: float) -> float:
    """Return sum_{i != j} (S_ij - h_i.h_j / K)^2 + mu h_i.h_j."""
    products = centers @ centers.T
    pairs = np.square(similarity - products / centers.shape[1]) + spread * products
    return float(pairs[~np.eye(len(centers), dtype=bool)].sum())


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_centers_of_shc_have_the_least_loss_at_their_distance(spread: float) -> None:
    random = np.random.default_rng(0)
    similarity = normalize_confusion(random.random((4, 4)) * (1 - np.eye(4)))
    data = TrainingData.from_arrays(4, None, np.arange(4))
    code = design_proxies(4, 4, "code")
    found = semantic_centers(similarity, code, data, ShcSettings(spread=spread))
    assert set(found.ravel()) == {-1.0, 1.0}
    assert gilbert_varshamov_distance(4, 4) == 2
    words = np.array(list(product([-1, 1], repeat=4)))
    others = (np.stack([words[0], *rest]) for rest in product(words, repeat=3))
    allowed = (each for each in others if (hamming_distances(each) + 4 * np.eye(4)).min() >= 2)
    assert (hamming_distances(found) + 4 * np.eye(4)).min() >= 2
    assert shc_loss(found, similarity, spread) == pytest.approx(min(shc_loss(each, similarity, spread) for each in allowed))


def test_squared_distances_to_the_wanted_ones_are_the_loss_of_shc() -> None:
    bits, spread = 8, 0.01
    wanted, losses, squares = center_distances(SIMILARITY, bits, spread), [], []
    for seed in range(5):
        centers = np.random.default_rng(seed).choice([-1.0, 1.0], (3, bits))
        losses.append(shc_loss(centers, SIMILARITY, spread))
        squares.append(np.square(hamming_distances(centers) - wanted)[~np.eye(3, dtype=bool)].sum() * 4 / bits**2)
    np.testing.assert_allclose(np.diff(losses), np.diff(squares))


def shc(classes: int, bits: int, features: np.ndarray | None, labels: np.ndarray, **settings: object) -> HashingMethod:
    assert classes == labels.max() + 1
    return build_method("shc", TrainingData.from_arrays(bits, features, labels), settings)


def test_similar_classes_have_near_centers_in_shc() -> None:
    random, labels = np.random.default_rng(0), np.arange(600) % 6
    places = np.array([[0, 0], [1, 0], [9, 0], [9, 1], [0, 9], [1, 9]])  # three pairs of neighbors
    features = (places[labels] + random.standard_normal((600, 2))).astype(np.float32)
    made = shc(6, 16, features, labels, min_distance=4)  # 7, the default, leaves no room
    assert isinstance(made, Shc)
    distances = hamming_distances(made.centers.numpy())
    neighbors = distances[[0, 2, 4], [1, 3, 5]]
    others = distances[np.repeat([0, 1, 2, 3], [4, 4, 2, 2]), [2, 3, 4, 5, 2, 3, 4, 5, 4, 5, 4, 5]]
    assert neighbors.mean() < others.mean() - 1
    assert neighbors.min() >= 4
    np.testing.assert_array_equal(made.proxies().weights, made.centers.numpy())
    assert made.proxies().quality.assignment is not None
    again = shc(6, 16, features, labels, min_distance=4)
    assert isinstance(again, Shc)
    assert torch.equal(made.centers, again.centers)


def test_min_distance_of_shc_can_be_given() -> None:
    labels = np.arange(COUNT) % 5
    made = shc(5, BITS, FEATURES, labels, min_distance=4)
    assert isinstance(made, Shc)
    assert made.designed.quality.min_distance >= 4
    with pytest.raises(InputError, match="A minimal distance of 8 bits is out of reach for 5 classes in 8 bits: ask for"):
        shc(5, BITS, FEATURES, labels, min_distance=8)
    with pytest.raises(InputError, match="min_distance must be at least 1"):
        shc(5, BITS, FEATURES, labels, min_distance=0)


def test_shc_without_features_has_the_best_code() -> None:
    made = shc(5, BITS, None, np.arange(COUNT) % 5)
    assert isinstance(made, Shc)
    np.testing.assert_array_equal(made.centers.numpy(), design_proxies(5, BITS, "code").weights)


def crh(kind: str = "classes", **settings: object) -> Crh:
    made = build_method("crh", small_data(kind), settings)
    assert isinstance(made, Crh)
    return made


@pytest.mark.parametrize(("classes", "bits", "shape"), [(100, 16, (2, 200, 8)), (100, 64, (8, 200, 8)), (5, 12, (3, 10, 4))])
def test_codebook_of_crh_has_the_shortest_parts_with_room(classes: int, bits: int, shape: tuple[int, ...]) -> None:
    codebook = draw_codebook(classes, bits, 2, np.random.default_rng(0))
    assert codebook.shape == shape
    assert (np.abs(codebook) == 1).all()
    assert [len(np.unique(part, axis=0)) for part in codebook] == [shape[1]] * shape[0]


def test_codebook_of_crh_is_as_large_as_the_code_allows() -> None:
    assert draw_codebook(3, 2, 2, np.random.default_rng(0)).shape == (1, 4, 2)
    assert draw_codebook(3, 67, 2, np.random.default_rng(0)).shape == (1, 6, 67)  # 67 is prime
    with pytest.raises(InputError, match="5 classes cannot have different codes of 2 bits: use at least 3 bits"):
        draw_codebook(5, 2, 2, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_cost_of_crh_is_the_mean_squared_distance_of_codes_to_subcodes(kind: str) -> None:
    labels = small_data(kind).require_labels()
    codes = np.where(embeddings().detach().numpy() >= 0, 1, -1)
    codebook = draw_codebook(len(NAMES), BITS, 1, np.random.default_rng(0))  # 2 parts of 4 bits, 5 words
    weights = labels.one_hot() / np.maximum(labels.one_hot().sum(1, keepdims=True), 1)
    expected = np.zeros((2, 5, 5))
    for part, label, word in np.ndindex(expected.shape):
        distances = np.square(codes[:, 4 * part : 4 * part + 4] - codebook[part, word]).sum(1)
        expected[part, label, word] = np.average(distances, weights=weights[:, label])
    means = class_mean_signs(embeddings().detach().numpy(), *labels.nonzero(), len(NAMES))
    np.testing.assert_allclose(assignment_costs(means, codebook), expected)


def test_greedy_assignment_gives_each_class_in_turn_the_cheapest_subcode_that_is_left() -> None:
    costs = np.array([[1.0, 2.0, 9.0], [0.0, 5.0, 9.0]])
    assert greedy_assignment(costs, np.array([0, 1])).tolist() == [0, 1]
    assert greedy_assignment(costs, np.array([1, 0])).tolist() == [1, 0]


@pytest.mark.parametrize("assignment", ["greedy", "hungarian"])
def test_crh_moves_centers_to_the_codes_of_their_classes(assignment: str) -> None:
    made, nu = crh(assignment=assignment), embeddings().detach()
    before = made.centers.clone()
    made.on_epoch_end(lambda: nu, made.build_head(HeadConfig(3, BITS)))
    assert len(made.centers.unique(dim=0)) == len(NAMES)
    codes, labels = torch.where(nu >= 0, 1.0, -1.0), targets("classes")
    costs = [(codes - centers[labels]).square().sum(1).mean() for centers in (before, made.centers)]
    assert costs[1] < costs[0]
    np.testing.assert_array_equal(made.proxies().weights, made.centers.numpy())


def test_hungarian_assignment_of_crh_costs_least() -> None:
    totals, nu = {}, embeddings().detach()
    for assignment in ("greedy", "hungarian"):
        made = crh(assignment=assignment)
        made.on_epoch_end(lambda: nu, made.build_head(HeadConfig(3, BITS)))
        means = class_mean_signs(nu.numpy(), *made.labels.nonzero(), len(NAMES))
        totals[assignment] = float(np.square(means - made.centers.numpy()).sum())
    assert totals["hungarian"] <= totals["greedy"]


def test_crh_reassigns_after_each_early_epoch_and_every_fifth_later() -> None:
    made, done = crh(), []
    for epoch in range(1, 33):

        def embed(epoch: int = epoch) -> torch.Tensor:
            done.append(epoch)
            return embeddings().detach()

        made.on_epoch_end(embed, made.build_head(HeadConfig(3, BITS)))
    assert done == [*range(1, 21), 25, 30]


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_crh_is_a_cross_entropy_of_cosines_with_a_margin_plus_quantization(kind: str) -> None:
    made, u = crh(kind), 2 * embeddings().detach()
    labels = TAGS.astype(float) if kind == "tags" else np.eye(len(NAMES))[targets("classes").numpy()]
    outputs, centers = u.double().numpy(), made.centers.double().numpy()
    cosines = outputs @ centers.T / np.linalg.norm(outputs, axis=1, keepdims=True) / np.sqrt(BITS)
    powers = np.exp(np.sqrt(2) * np.log(len(NAMES) - 1) * (cosines - 0.2 * labels))
    wanted = labels / np.maximum(labels.sum(1, keepdims=True), 1)
    crossed = -(wanted * np.log(powers / powers.sum(1, keepdims=True))).sum(1).mean()
    quantized = np.square(np.abs(np.tanh(outputs)) - 1).mean()
    expected = crossed + (0 if kind == "tags" else 0.1) * quantized
    assert float(made(u, targets(kind), torch.arange(COUNT))) == pytest.approx(expected, rel=1e-5)


def test_crh_learns_two_classes() -> None:
    made = build_method("crh", TrainingData.from_arrays(4, None, np.arange(8) % 2), {})
    u = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    made(u, torch.arange(8) % 2, torch.arange(8)).backward()
    assert u.grad is not None
    assert u.grad.abs().sum() > 0.01


def test_centers_of_crh_are_composed_of_subcodes() -> None:
    codebook = np.array([[[1.0, 1.0], [1.0, -1.0]], [[-1.0, -1.0], [-1.0, 1.0]]], np.float32)
    composed = compose_centers(codebook, np.array([[1, 0], [0, 1]]))
    np.testing.assert_array_equal(composed, [[1, -1, -1, -1], [1, 1, -1, 1]])


def test_crh_goes_on_with_the_centers_of_its_checkpoint() -> None:
    made, other = crh(), build_method("crh", small_data("classes"), {"scale": None})
    made.on_epoch_end(lambda: embeddings().detach(), made.build_head(HeadConfig(3, BITS)))
    other.load_state_dict(made.state_dict())
    for each in (made, other):
        each.on_epoch_end(lambda: -embeddings().detach(), made.build_head(HeadConfig(3, BITS)))
    assert torch.equal(made.centers, other.get_buffer("centers"))
