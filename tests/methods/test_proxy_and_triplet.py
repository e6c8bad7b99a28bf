"""Methods around proxies, and the triplet loss."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers.method_losses import BITS, COUNT, FEATURES, NAMES, SMALL_LABELS, TAGS, embeddings, small_data, targets
from proxyhash.losses import (
    ProxyLoss,
    bitwise_cross_entropy,
    cosine_cross_entropy,
    hamming_triplet,
    proxy_cross_entropy,
    proxy_nca,
)
from proxyhash.methods import TrainingData, build_method, check_settings, parse_method
from proxyhash.methods.proxy import ProxyMethod, class_similarity
from proxyhash.models.network import HashHead, HeadConfig
from proxyhash.proxies import class_mean_similarity, design_proxies, tag_similarity
from proxyhash.utils.errors import InputError


def test_paper_preset_has_the_settings_of_the_paper() -> None:
    random = np.random.default_rng(0)
    features, classes = random.standard_normal((80, 6)).astype(np.float32), np.arange(80) % 40
    data = TrainingData.from_arrays(BITS, features, classes)
    name, settings = parse_method("shclm:paper")
    made = build_method(name, data, settings)
    assert isinstance(made, ProxyMethod)
    similarity = class_mean_similarity(features, classes)
    by_swaps, annealed = (
        design_proxies(40, BITS, "shclm", similarity, solver=solver).weights for solver in ("greedy", "anneal")
    )
    assert np.array_equal(made.proxies().weights, by_swaps), "the assignment by greedy swaps"
    assert not np.array_equal(by_swaps, annealed)
    assert isinstance(made.loss, ProxyLoss)
    assert made.loss.bias is not None
    made.loss.bias.data.normal_()
    nu, y = embeddings().detach(), torch.arange(COUNT)
    logits = nu @ made.weights.T + made.loss.bias  # w.nu + b, unscaled
    torch.testing.assert_close(made(nu, y, y), cross_entropy(logits, y))


def test_paper_preset_on_tags_has_unscaled_logits_and_no_bias() -> None:
    made = build_method("shclm", small_data("tags"), parse_method("shclm:paper")[1])
    assert isinstance(made, ProxyMethod)
    assert (made.tau, made.settings.bias, list(made.parameters())) == (BITS, False, [])
    nu, tags = embeddings().detach(), targets("tags")
    rare = 1 - torch.from_numpy(TAGS.mean(0))
    likely = torch.sigmoid(nu.double() @ made.weights.double().T)
    expected = -(rare * tags * likely.log() + (1 - rare) * (1 - tags) * (1 - likely).log()).sum(1).mean()
    torch.testing.assert_close(made(nu, tags, torch.arange(COUNT)).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ("shclm:paper", {"tau": "d", "bias": True, "assignment": "greedy"}),
        ("hclm:paper", {"tau": "d", "bias": True}),
        ("learned:paper", {"tau": "d", "bias": True}),
        ("shclm:triplet=1:paper:tau=4", {"tau": 4, "bias": True, "assignment": "greedy", "triplet": 1}),
    ],
)
def test_presets_are_typed_by_name_and_settings_beside_them_are_kept(row: str, settings: dict[str, Any]) -> None:
    assert parse_method(row)[1] == settings
    check_settings(row.partition(":")[0], settings)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("shclm:papr", "typed name:setting=value, not shclm:papr; shclm has the preset paper."),
        ("joint:paper", "typed name:setting=value, not joint:paper."),
        ("lsh:paper", "typed name:setting=value, not lsh:paper."),
    ],
)
def test_unknown_preset_is_one_sentence(row: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        parse_method(row)
    assert str(error.value).endswith(sentence)


@pytest.mark.parametrize("name", ["learned", "hclm"])
def test_bias_learns_the_prior_of_unbalanced_classes(name: str) -> None:
    y = torch.tensor([0] * 24 + [1, 2, 3, 4, 1, 2])
    nu = torch.zeros(COUNT, BITS)  # tells nothing about the class
    made = build_method(name, small_data("classes"), {"bias": True})
    assert isinstance(made, ProxyMethod)
    assert isinstance(made.loss, ProxyLoss)
    optimizer = torch.optim.SGD(made.parameters(), lr=2.0)
    for _ in range(300):
        optimizer.zero_grad()
        made(nu, y, y).backward()
        optimizer.step()
    assert made.loss.bias is not None
    prior = torch.bincount(y) / COUNT
    torch.testing.assert_close(made.loss.bias.softmax(0), prior, atol=0.01, rtol=0)
    plain = build_method(name, small_data("classes"), {})
    assert {"loss.bias"} == {key for key, _ in made.named_parameters()} - {key for key, _ in plain.named_parameters()}
    assert made.state_dict().keys() - plain.state_dict().keys() == {"bias"}


@pytest.mark.parametrize(("name", "moves"), [("learned", True), ("random", False), ("shclm", False)])
def test_only_learned_proxies_are_trained(name: str, moves: bool) -> None:
    made = build_method(name, small_data("classes"), {})
    assert isinstance(made, ProxyMethod)
    before = made.proxies().weights.copy()
    head = HashHead(HeadConfig(6, BITS))
    optimizer = torch.optim.SGD([*head.parameters(), *made.parameters()], lr=0.5)
    made(head(torch.from_numpy(FEATURES)), targets("classes"), torch.arange(COUNT)).backward()
    optimizer.step()
    assert np.array_equal(made.proxies().weights, before) is not moves
    assert np.array_equal(made.weights.detach().numpy(), before) is not moves


def test_default_tau_depends_on_the_labels() -> None:
    for labels, given, used in (("classes", {}, 6.0), ("tags", {}, 0.5), ("tags", {"tau": 3.0}, 3.0)):
        made = build_method("hclm", small_data(labels), given)
        assert isinstance(made, ProxyMethod)
        assert made.settings.tau == used


def test_joint_loss_is_the_sum_of_proxy_and_triplet_loss() -> None:
    nu, y = embeddings(), targets("classes")
    made = build_method(
        "hclm", small_data("classes", features=False), {"triplet": 3.0, "margin": 2.5, "tau": 7.0, "samples_per_class": 5}
    )
    assert isinstance(made, ProxyMethod)
    expected = proxy_cross_entropy(nu, y, made.weights, 7.0) + 3 * hamming_triplet(nu, y, 2.5)
    torch.testing.assert_close(made(nu, y, y), expected)
    assert made.samples_per_class == 5
    assert build_method("hclm", small_data("classes"), {}).samples_per_class == 0
    assert build_method("hclm", small_data("tags"), {"triplet": 1.0}).samples_per_class == 0
    assert build_method("hclm", small_data("classes"), {"triplet": 1.0}).samples_per_class == 4
    assert build_method("hclm", small_data("classes"), {"triplet": 1.0, "samples_per_class": 0}).samples_per_class == 0
    whole = replace(small_data("classes"), finetune=True)
    assert build_method("hclm", whole, {"triplet": 1.0}).samples_per_class == 2, (
        "batch normalization sees who is in the batch"
    )
    assert build_method("hclm", whole, {"triplet": 1.0, "samples_per_class": 4}).samples_per_class == 4
    assert build_method("triplet", small_data("classes"), {}).samples_per_class == 4
    by_nca = build_method("hclm", small_data("classes"), {"loss": "nca"})
    torch.testing.assert_close(by_nca(nu, y, y), proxy_nca(nu, y, made.weights, 6.0))
    by_angle = build_method("hclm", small_data("classes"), {"loss": "cosine"})
    torch.testing.assert_close(by_angle(nu, y, y), cosine_cross_entropy(nu, y, made.weights, 6.0))
    by_bit = build_method("hclm", small_data("classes"), {"loss": "bits"})
    torch.testing.assert_close(by_bit(nu, y, y), bitwise_cross_entropy(nu, made.weights[y]))
    alone = build_method("triplet", small_data("classes"), {})
    torch.testing.assert_close(alone(nu, y, y), hamming_triplet(nu, y, BITS / 16))


def test_the_nearest_proxy_scores_highest() -> None:
    made = build_method("hclm", small_data("classes"), {})
    assert isinstance(made, ProxyMethod)
    assert made.scores(made.weights).argmax(1).tolist() == list(range(len(NAMES)))


def test_similarity_comes_from_means_or_tags() -> None:
    np.testing.assert_array_equal(
        class_similarity(small_data("classes"), "auto"), class_mean_similarity(FEATURES, SMALL_LABELS)
    )
    np.testing.assert_array_equal(class_similarity(small_data("tags"), "auto"), tag_similarity(TAGS))
    means = class_similarity(small_data("tags"), "means")
    assert means is not None
    by_hand = [FEATURES[TAGS[:, tag]].mean(0) for tag in range(len(NAMES))]
    np.testing.assert_allclose(means, class_mean_similarity(np.array(by_hand), np.arange(len(NAMES))), rtol=1e-5)
    assert class_similarity(small_data("classes", features=False), "auto") is None
    tagged = [build_method("shclm", small_data("tags"), {"similarity": source}).proxies() for source in ("tags", "means")]
    assert [proxies.quality.assignment is not None for proxies in tagged if proxies] == [True, True]


def test_distance_share_sets_the_min_distance_of_joint() -> None:
    reached = build_method("code", small_data("classes"), {}).proxies()
    assert reached is not None
    least = []
    for share in (0.5, 1.0):
        proxies = build_method("joint", small_data("classes"), {"distance_share": share}).proxies()
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
        ("shclm", {"tau": "e"}, "sHCLM: tau is one of a number, d, not 'e'."),
        ("hclm", {"assignment": "greedy"}, "HCLM has no setting 'assignment'"),
        ("shclm", {"bias": True, "loss": "bits"}, "The bias of classes belongs to the loss softmax, not to bits."),
        ("shclm", {"triplet": -1.0}, "neither triplet nor margin may be negative"),
        ("hclm", {"loss": "mse"}, "HCLM: loss is one of softmax, nca, cosine, bits, not 'mse'."),
        ("learned", {"loss": "bits"}, "The loss bits needs proxies of +1 and -1, and those of the kind learned are not."),
        ("shclm", {"similarity": "names"}, "sHCLM: similarity is one of auto, means, tags, not 'names'."),
        ("shclm", {"similarity": "tags"}, "Only tagged images have tags that occur together"),
        ("hclm", {"samples_per_class": 1}, "samples_per_class must be at least 2, not 1."),
        ("shclm", {"distance_share": 0.5}, "sHCLM has no setting 'distance_share'; choose from tau, triplet, margin"),
        (
            "joint",
            {"distance_share": 1.5},
            "distance_share is a share of the largest minimal distance",
        ),
        ("triplet", {"margin": -1.0}, "The margin may not be negative."),
    ],
)
def test_wrong_settings_are_one_sentence(name: str, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build_method(name, small_data("classes"), settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("name", "kind", "stored"),
    [
        ("shclm", "classes", {"weights", "frequencies"}),
        ("shclm", "tags", {"weights", "frequencies"}),
        ("learned", "classes", {"weights", "frequencies"}),
        ("mdsh", "classes", {"centers", "bank", "epochs"}),
    ],
)
def test_tensors_keep_their_names_in_checkpoints(name: str, kind: str, stored: set[str]) -> None:
    made, other = (build_method(name, replace(small_data(kind), seed=seed), {}) for seed in (0, 1))
    state = made.state_dict()
    assert set(state) == stored
    nu, y = embeddings(), targets(kind)
    assert not torch.equal(made(nu, y, y), other(nu, y, y))
    other.load_state_dict(state)
    assert torch.equal(made(nu, y, y), other(nu, y, y))
