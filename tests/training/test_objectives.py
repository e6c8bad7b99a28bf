"""Every method keeps one contract; what is special about proxies and triplets is tested beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from proxyhash.models.network import HashHead, HeadConfig
from proxyhash.proxies import class_mean_similarity, tag_similarity
from proxyhash.training.losses import bitwise_cross_entropy, cosine_cross_entropy, hamming_triplet, nca, proxy_cross_entropy
from proxyhash.training.objectives import Objective, Task, build_objective, find_objective, list_objectives, objective
from proxyhash.training.objectives.proxy import ProxyObjective, class_similarity
from proxyhash.training.objectives.registry import _METHODS
from proxyhash.utils.errors import InputError

NAMES, BITS, COUNT = tuple("abcde"), 8, 30
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.standard_normal((COUNT, 6)).astype(np.float32)
LABELS = np.arange(COUNT) % len(NAMES)
TAGS = RANDOM.random((COUNT, len(NAMES))) < 0.4
TAGS[: len(NAMES)] |= np.eye(len(NAMES), dtype=bool)


def task(kind: str, features: bool = True) -> Task:
    given = (lambda: FEATURES) if features else None
    return Task(BITS, NAMES, LABELS if kind == "classes" else None, TAGS if kind == "tags" else None, given)


def targets(kind: str) -> torch.Tensor:
    return torch.from_numpy(LABELS) if kind == "classes" else torch.from_numpy(TAGS.astype(np.float32))


def embeddings() -> torch.Tensor:
    return torch.tanh(torch.randn(COUNT, BITS, generator=torch.Generator().manual_seed(1))).requires_grad_()


@pytest.mark.parametrize("kind", ["classes", "tags"])
@pytest.mark.parametrize("name", list_objectives())
def test_every_method_keeps_the_contract(name: str, kind: str) -> None:
    if kind == "tags" and not find_objective(name).takes_tags:
        pytest.skip("for classes only")
    made = build_objective(name, task(kind), {})
    head = made.head(HeadConfig(6, BITS))
    outputs = head(torch.from_numpy(FEATURES)).detach()
    assert outputs.shape == (COUNT, head.out_features)
    assert head.encode(outputs.numpy()).shape == (COUNT, 1)
    nu = embeddings() if head.searches == "Hamming" else outputs.requires_grad_()
    loss = made(nu, targets(kind), torch.arange(COUNT))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    assert nu.grad is not None
    assert nu.grad.abs().sum() > 0
    scores, proxies = made.scores(nu), made.proxies()
    assert scores is None or scores.shape == (COUNT, len(NAMES))
    assert proxies is None or proxies.weights.shape == (len(NAMES), BITS)
    assert made.per_class >= 0
    assert find_objective(name).summary
    made.after_epoch(nu.detach, head)
    again = build_objective(name, task(kind), {})
    torch.testing.assert_close(again(nu, targets(kind), torch.arange(COUNT)), loss, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "moves"), [("learned", True), ("random", False), ("shclm", False)])
def test_learned_proxies_move_and_fixed_ones_do_not(name: str, moves: bool) -> None:
    made = build_objective(name, task("classes"), {})
    assert isinstance(made, ProxyObjective)
    before = made.proxies().weights.copy()
    head = HashHead(HeadConfig(6, BITS))
    optimizer = torch.optim.SGD([*head.parameters(), *made.parameters()], lr=0.5)
    made(head(torch.from_numpy(FEATURES)), targets("classes"), torch.arange(COUNT)).backward()
    optimizer.step()
    assert np.array_equal(made.proxies().weights, before) is not moves
    assert np.array_equal(made.weights.detach().numpy(), before) is not moves


def test_tau_is_what_suits_the_labels_unless_it_is_given() -> None:
    for labels, given, used in (("classes", {}, 6.0), ("tags", {}, 0.5), ("tags", {"tau": 3.0}, 3.0)):
        made = build_objective("hclm", task(labels), given)
        assert isinstance(made, ProxyObjective)
        assert made.settings.tau == used


def test_the_joint_loss_is_the_sum_and_asks_for_classes_side_by_side() -> None:
    nu, y = embeddings(), targets("classes")
    made = build_objective(
        "hclm", task("classes", features=False), {"triplet": 3.0, "margin": 2.5, "tau": 7.0, "per_class": 5}
    )
    assert isinstance(made, ProxyObjective)
    expected = proxy_cross_entropy(nu, y, made.weights, 7.0) + 3 * hamming_triplet(nu, y, 2.5)
    torch.testing.assert_close(made(nu, y, y), expected)
    assert made.per_class == 5
    assert build_objective("hclm", task("classes"), {}).per_class == 0
    assert build_objective("hclm", task("tags"), {"triplet": 1.0}).per_class == 0
    assert build_objective("hclm", task("classes"), {"triplet": 1.0}).per_class == 4
    assert build_objective("hclm", task("classes"), {"triplet": 1.0, "per_class": 0}).per_class == 0
    whole = replace(task("classes"), finetunes=True)
    assert build_objective("hclm", whole, {"triplet": 1.0}).per_class == 2, "batch normalization sees who is in the batch"
    assert build_objective("hclm", whole, {"triplet": 1.0, "per_class": 4}).per_class == 4
    assert build_objective("triplet", task("classes"), {}).per_class == 4
    by_nca = build_objective("hclm", task("classes"), {"loss": "nca"})
    torch.testing.assert_close(by_nca(nu, y, y), nca(nu, y, made.weights, 6.0))
    by_angle = build_objective("hclm", task("classes"), {"loss": "cosine"})
    torch.testing.assert_close(by_angle(nu, y, y), cosine_cross_entropy(nu, y, made.weights, 6.0))
    by_bit = build_objective("hclm", task("classes"), {"loss": "bits"})
    torch.testing.assert_close(by_bit(nu, y, y), bitwise_cross_entropy(nu, made.weights[y]))
    alone = build_objective("triplet", task("classes"), {})
    torch.testing.assert_close(alone(nu, y, y), hamming_triplet(nu, y, BITS / 16))


def test_the_nearest_proxy_scores_highest() -> None:
    made = build_objective("hclm", task("classes"), {})
    assert isinstance(made, ProxyObjective)
    assert made.scores(made.weights).argmax(1).tolist() == list(range(len(NAMES)))


def test_similarity_comes_from_means_or_tags() -> None:
    np.testing.assert_array_equal(class_similarity(task("classes"), "auto"), class_mean_similarity(FEATURES, LABELS))
    np.testing.assert_array_equal(class_similarity(task("tags"), "auto"), tag_similarity(TAGS))
    means = class_similarity(task("tags"), "means")
    assert means is not None
    by_hand = [FEATURES[TAGS[:, tag]].mean(0) for tag in range(len(NAMES))]
    np.testing.assert_allclose(means, class_mean_similarity(np.array(by_hand), np.arange(len(NAMES))), rtol=1e-5)
    assert class_similarity(task("classes", features=False), "auto") is None
    tagged = [build_objective("shclm", task("tags"), {"similarity": source}).proxies() for source in ("tags", "means")]
    assert [proxies.quality.assignment is not None for proxies in tagged if proxies] == [True, True]


def test_a_floor_is_a_share_of_what_is_possible() -> None:
    reached = build_objective("code", task("classes"), {}).proxies()
    assert reached is not None
    least = []
    for share in (0.5, 1.0):
        proxies = build_objective("joint", task("classes"), {"floor": share}).proxies()
        assert proxies is not None
        least.append(proxies.quality.min_distance)
    assert least[1] == reached.quality.min_distance
    assert round(reached.quality.min_distance / 2) <= least[0] <= least[1]


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("shcml", {}, "There is no training method 'shcml'; did you mean shclm?"),
        ("zzz", {}, "There is no training method 'zzz'; choose from learned, random"),
        ("shclm", {"taw": 3}, "The method shclm has no setting taw; it has tau, triplet"),
        ("shclm", {"tau": -1.0}, "tau must be positive"),
        ("shclm", {"triplet": -1.0}, "neither triplet nor margin may be negative"),
        ("hclm", {"loss": "mse"}, "The proxy loss is softmax, nca, cosine or bits, not 'mse'."),
        ("learned", {"loss": "bits"}, "The loss bits needs proxies of +1 and -1, and those of the kind learned are not."),
        ("shclm", {"similarity": "names"}, "The similarity of classes comes from means or tags, not 'names'."),
        ("shclm", {"similarity": "tags"}, "Only tagged images have tags that occur together"),
        ("hclm", {"per_class": 1}, "per_class must be at least 2, not 1."),
        ("shclm", {"floor": 0.5}, "The method shclm has no setting floor; it has tau, triplet"),
        ("joint", {"floor": 1.5}, "floor is a share of the distance that is possible, from 0 to 1, not 1.5."),
        ("triplet", {"margin": -1.0}, "The margin may not be negative."),
    ],
)
def test_mistakes_are_answered(name: str, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build_objective(name, task("classes"), settings)
    assert sentence in str(error.value)


def test_a_new_method_is_a_short_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.training.objectives.registry._METHODS", dict(_METHODS))

    class Nothing:
        pass

    class Centre(Objective):
        def forward(self, nu: torch.Tensor, targets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return nu.square().mean()

    from dataclasses import dataclass

    @objective("centre", "everything to the centre", dataclass(Nothing), takes_tags=False)
    def build(_: Task, __: Nothing) -> Objective:
        return Centre()

    assert "centre" in list_objectives()
    assert isinstance(build_objective("centre", task("classes"), {}), nn.Module)
    with pytest.raises(InputError, match=r"The method centre learns from classes, and this data set has tags."):
        build_objective("centre", task("tags"), {})
