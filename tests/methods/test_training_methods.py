"""Every method keeps one contract; what is special about proxies and triplets is tested beside it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.losses import bitwise_cross_entropy, cosine_cross_entropy, hamming_triplet, proxy_cross_entropy, proxy_nca
from proxyhash.methods import HashingMethod, TrainingData, build_method, get_method, list_methods, register_method, registry
from proxyhash.methods.proxy import ProxyMethod, class_similarity
from proxyhash.models.network import HashHead, HeadShape
from proxyhash.proxies import class_mean_similarity, tag_similarity
from proxyhash.utils.errors import InputError

NAMES, BITS, COUNT = tuple("abcde"), 8, 30
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.standard_normal((COUNT, 6)).astype(np.float32)
LABELS = np.arange(COUNT) % len(NAMES)
TAGS = RANDOM.random((COUNT, len(NAMES))) < 0.4
TAGS[: len(NAMES)] |= np.eye(len(NAMES), dtype=bool)


def data(kind: str, features: bool = True) -> TrainingData:
    labels = ClassLabels(LABELS, NAMES) if kind == "classes" else TagLabels(TAGS, NAMES)
    return TrainingData(BITS, FEATURES if features else None, labels)


def targets(kind: str) -> torch.Tensor:
    return torch.from_numpy(LABELS) if kind == "classes" else torch.from_numpy(TAGS.astype(np.float32))


def embeddings() -> torch.Tensor:
    return torch.tanh(torch.randn(COUNT, BITS, generator=torch.Generator().manual_seed(1))).requires_grad_()


@pytest.mark.parametrize("kind", ["classes", "tags"])
@pytest.mark.parametrize("name", list_methods(trains=True))
def test_every_method_keeps_the_contract(name: str, kind: str) -> None:
    if kind == "tags" and get_method(name).learns_from == "classes":
        pytest.skip("for classes only")
    made = build_method(name, data(kind), {})
    head = made.build_head(HeadShape(6, BITS))
    outputs = head(torch.from_numpy(FEATURES)).detach()
    assert outputs.shape == (COUNT, head.outputs)
    assert head.codes(outputs.numpy()).shape == (COUNT, 1)
    nu = embeddings() if head.metric == "hamming" else outputs.requires_grad_()
    loss = made(nu, targets(kind), torch.arange(COUNT))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    assert nu.grad is not None
    assert nu.grad.abs().sum() > 0
    scores, proxies = made.scores(nu), made.proxies()
    assert scores is None or scores.shape == (COUNT, len(NAMES))
    assert proxies is None or proxies.weights.shape == (len(NAMES), BITS)
    assert made.samples_per_class >= 0
    made.on_epoch_end(nu.detach, head)
    again = build_method(name, data(kind), {})
    torch.testing.assert_close(again(nu, targets(kind), torch.arange(COUNT)), loss, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "moves"), [("learned", True), ("random", False), ("shclm", False)])
def test_learned_proxies_move_and_fixed_ones_do_not(name: str, moves: bool) -> None:
    made = build_method(name, data("classes"), {})
    assert isinstance(made, ProxyMethod)
    before = made.proxies().weights.copy()
    head = HashHead(HeadShape(6, BITS))
    optimizer = torch.optim.SGD([*head.parameters(), *made.parameters()], lr=0.5)
    made(head(torch.from_numpy(FEATURES)), targets("classes"), torch.arange(COUNT)).backward()
    optimizer.step()
    assert np.array_equal(made.proxies().weights, before) is not moves
    assert np.array_equal(made.weights.detach().numpy(), before) is not moves


def test_tau_is_what_suits_the_labels_unless_it_is_given() -> None:
    for labels, given, used in (("classes", {}, 6.0), ("tags", {}, 0.5), ("tags", {"tau": 3.0}, 3.0)):
        made = build_method("hclm", data(labels), given)
        assert isinstance(made, ProxyMethod)
        assert made.settings.tau == used


def test_the_joint_loss_is_the_sum_and_asks_for_classes_side_by_side() -> None:
    nu, y = embeddings(), targets("classes")
    made = build_method(
        "hclm", data("classes", features=False), {"triplet": 3.0, "margin": 2.5, "tau": 7.0, "samples_per_class": 5}
    )
    assert isinstance(made, ProxyMethod)
    expected = proxy_cross_entropy(nu, y, made.weights, 7.0) + 3 * hamming_triplet(nu, y, 2.5)
    torch.testing.assert_close(made(nu, y, y), expected)
    assert made.samples_per_class == 5
    assert build_method("hclm", data("classes"), {}).samples_per_class == 0
    assert build_method("hclm", data("tags"), {"triplet": 1.0}).samples_per_class == 0
    assert build_method("hclm", data("classes"), {"triplet": 1.0}).samples_per_class == 4
    assert build_method("hclm", data("classes"), {"triplet": 1.0, "samples_per_class": 0}).samples_per_class == 0
    whole = replace(data("classes"), finetune=True)
    assert build_method("hclm", whole, {"triplet": 1.0}).samples_per_class == 2, (
        "batch normalization sees who is in the batch"
    )
    assert build_method("hclm", whole, {"triplet": 1.0, "samples_per_class": 4}).samples_per_class == 4
    assert build_method("triplet", data("classes"), {}).samples_per_class == 4
    by_nca = build_method("hclm", data("classes"), {"loss": "nca"})
    torch.testing.assert_close(by_nca(nu, y, y), proxy_nca(nu, y, made.weights, 6.0))
    by_angle = build_method("hclm", data("classes"), {"loss": "cosine"})
    torch.testing.assert_close(by_angle(nu, y, y), cosine_cross_entropy(nu, y, made.weights, 6.0))
    by_bit = build_method("hclm", data("classes"), {"loss": "bits"})
    torch.testing.assert_close(by_bit(nu, y, y), bitwise_cross_entropy(nu, made.weights[y]))
    alone = build_method("triplet", data("classes"), {})
    torch.testing.assert_close(alone(nu, y, y), hamming_triplet(nu, y, BITS / 16))


def test_the_nearest_proxy_scores_highest() -> None:
    made = build_method("hclm", data("classes"), {})
    assert isinstance(made, ProxyMethod)
    assert made.scores(made.weights).argmax(1).tolist() == list(range(len(NAMES)))


def test_similarity_comes_from_means_or_tags() -> None:
    np.testing.assert_array_equal(class_similarity(data("classes"), "auto"), class_mean_similarity(FEATURES, LABELS))
    np.testing.assert_array_equal(class_similarity(data("tags"), "auto"), tag_similarity(TAGS))
    means = class_similarity(data("tags"), "means")
    assert means is not None
    by_hand = [FEATURES[TAGS[:, tag]].mean(0) for tag in range(len(NAMES))]
    np.testing.assert_allclose(means, class_mean_similarity(np.array(by_hand), np.arange(len(NAMES))), rtol=1e-5)
    assert class_similarity(data("classes", features=False), "auto") is None
    tagged = [build_method("shclm", data("tags"), {"similarity": source}).proxies() for source in ("tags", "means")]
    assert [proxies.quality.assignment is not None for proxies in tagged if proxies] == [True, True]


def test_distance_share_sets_the_min_distance_of_joint() -> None:
    reached = build_method("code", data("classes"), {}).proxies()
    assert reached is not None
    least = []
    for share in (0.5, 1.0):
        proxies = build_method("joint", data("classes"), {"distance_share": share}).proxies()
        assert proxies is not None
        least.append(proxies.quality.min_distance)
    assert least[1] == reached.quality.min_distance
    assert round(reached.quality.min_distance / 2) <= least[0] <= least[1]


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("shcml", {}, "There is no method 'shcml'; did you mean shclm?"),
        ("zzz", {}, "There is no method 'zzz'; choose from adsh, "),
        ("shclm", {"taw": 3}, "sHCLM has no setting 'taw'; did you mean tau?"),
        ("shclm", {"tau": -1.0}, "tau must be positive"),
        ("shclm", {"triplet": -1.0}, "neither triplet nor margin may be negative"),
        ("hclm", {"loss": "mse"}, "HCLM: loss is one of softmax, nca, cosine, bits, not 'mse'."),
        ("learned", {"loss": "bits"}, "The loss bits needs proxies of +1 and -1, and those of the kind learned are not."),
        ("shclm", {"similarity": "names"}, "sHCLM: similarity is one of auto, means, tags, not 'names'."),
        ("shclm", {"similarity": "tags"}, "Only tagged images have tags that occur together"),
        ("hclm", {"samples_per_class": 1}, "samples_per_class must be at least 2, not 1."),
        ("shclm", {"distance_share": 0.5}, "sHCLM has no setting 'distance_share'; choose from tau, triplet"),
        (
            "joint",
            {"distance_share": 1.5},
            "distance_share is a share of the largest minimal distance",
        ),
        ("triplet", {"margin": -1.0}, "The margin may not be negative."),
    ],
)
def test_mistakes_are_answered(name: str, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build_method(name, data("classes"), settings)
    assert sentence in str(error.value)


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    list_methods()  # so that all are known
    monkeypatch.setattr("proxyhash.methods.registry._METHODS", copy.deepcopy(registry._METHODS))


@pytest.mark.usefixtures("_own_registry")
def test_a_registered_class_can_be_built() -> None:
    @register_method("center", learns_from="classes")
    class Center(HashingMethod):
        def forward(self, embeddings: torch.Tensor, targets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return embeddings.square().mean()

    assert "center" in list_methods(trains=True)
    assert isinstance(build_method("center", data("classes"), {}), Center)
    with pytest.raises(InputError, match=r"center learns from classes and cannot use tags."):
        build_method("center", data("tags"), {})


@pytest.mark.usefixtures("_own_registry")
def test_a_taken_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"There is already a method 'dpsh'; choose another name."):
        register_method("dpsh")(ProxyMethod)


def test_only_methods_that_train_can_be_built() -> None:
    with pytest.raises(InputError, match="ITQ trains no network; choose from csq, dpn"):
        build_method("itq", data("classes"), {})
