"""Proxies that are assigned to the classes anew during training."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.method_losses import small_data
from proxyhash.methods import TrainingData, build_method
from proxyhash.methods.proxy import ProxyMethod
from proxyhash.models.heads import HeadConfig
from proxyhash.models.network import HashHead
from proxyhash.proxies import class_mean_similarity
from proxyhash.proxies.assignment import gain
from proxyhash.proxies.constructions.hadamard import hadamard
from proxyhash.utils.errors import InputError

CLASSES, BITS, WIDTH = 30, 12, 6
LABELS = np.arange(120) % CLASSES
FEATURES = np.random.default_rng(0).standard_normal((120, WIDTH)).astype(np.float32)
TAGS = (LABELS[:, None] == np.arange(CLASSES)) | (np.random.default_rng(1).random((120, CLASSES)) < 0.05)


def method(*, tags: bool = False, **settings: Any) -> ProxyMethod:
    data = TrainingData.from_arrays(BITS, FEATURES, TAGS if tags else LABELS)
    made = build_method("shclm", data, settings)
    assert isinstance(made, ProxyMethod)
    return made


def head(hidden_dim: int) -> HashHead:
    torch.manual_seed(3)
    return HashHead(HeadConfig(WIDTH, BITS, hidden_dim)).eval()


def read_by_last_layer(used: HashHead) -> np.ndarray:
    with torch.no_grad():
        read: torch.Tensor = used.layers[:-1](torch.from_numpy(FEATURES))
    return read.numpy()


def finish_epoch(made: ProxyMethod, used: HashHead) -> None:
    made.on_epoch_end(lambda: used(torch.from_numpy(FEATURES)).detach(), used)


@pytest.mark.parametrize("hidden_dim", [0, 5])
@pytest.mark.parametrize("tags", [False, True])
def test_proxies_follow_the_class_means_of_what_the_last_layer_reads(tags: bool, hidden_dim: int) -> None:
    made, used = method(tags=tags, reassign_every=1), head(hidden_dim)
    before = made.proxies().weights
    finish_epoch(made, used)
    after = made.proxies().weights
    images, classes = TAGS.nonzero() if tags else (np.arange(120), LABELS)
    similarity = class_mean_similarity(read_by_last_layer(used)[images], classes)
    assert sorted(map(tuple, after)) == sorted(map(tuple, before))
    if tags or hidden_dim:  # otherwise these means have decided the first assignment
        assert gain(similarity, after) > gain(similarity, before)
    np.testing.assert_array_equal(after, made.weights.numpy())
    assert not used.layers[-1]._forward_pre_hooks


def test_first_assignment_is_kept_as_long_as_the_similarity_is_the_same() -> None:
    made = method(reassign_every=1)
    before = made.proxies().weights
    finish_epoch(made, head(0))  # without a hidden layer, the last one reads the features
    similarity = class_mean_similarity(FEATURES, LABELS)
    assert gain(similarity, made.proxies().weights) >= gain(similarity, before)


def test_proxies_can_follow_the_embeddings() -> None:
    made, used = method(reassign_every=1, reassign_from="embeddings"), head(0)
    similarity = class_mean_similarity(used(torch.from_numpy(FEATURES)).detach().numpy(), LABELS)
    before = made.proxies().weights
    finish_epoch(made, used)
    assert gain(similarity, made.proxies().weights) > gain(similarity, before)


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({}, []),
        ({"reassign_every": 1}, [1, 2, 3, 4]),
        ({"reassign_every": 2}, [2, 4]),
        ({"reassign_every": 3, "reassign_until": 7}, [3, 6]),
    ],
)
def test_classes_are_reassigned_in_the_epochs_of_the_settings(settings: dict[str, Any], epochs: list[int]) -> None:
    made, used, done = method(**settings), head(5), []
    for epoch in range(1, 10):

        def embed(epoch: int = epoch) -> torch.Tensor:
            done.append(epoch)
            return used(torch.from_numpy(FEATURES)).detach()  # type: ignore[no-any-return]

        made.on_epoch_end(embed, used)
    assert done == epochs
    assert ("epochs" in made.state_dict()) == bool(settings)


def test_checkpoint_has_the_reassigned_proxies() -> None:
    made, other = method(reassign_every=1), method(reassign_every=1)
    finish_epoch(made, head(5))
    assert not torch.equal(made.weights, other.weights)
    other.load_state_dict(made.state_dict())
    assert torch.equal(made.weights, other.weights)
    np.testing.assert_array_equal(made.proxies().weights, other.proxies().weights)


def test_equidistant_proxies_keep_their_classes() -> None:
    rows = hadamard(BITS)
    assert rows is not None
    data = TrainingData.from_arrays(BITS, FEATURES, LABELS % BITS)
    made, used = build_method("scode", data, {"reassign_every": 1}), head(5)
    assert isinstance(made, ProxyMethod)
    made.weights.copy_(torch.from_numpy(rows))
    finish_epoch(made, used)
    np.testing.assert_array_equal(made.weights.numpy(), rows)


def test_wrong_settings_and_classes_without_images_are_one_sentence() -> None:
    with pytest.raises(InputError, match="reassign_every must be at least 1, not 0"):
        method(reassign_every=0)
    with pytest.raises(InputError, match="reassign_until must be at least 1, not 0"):
        method(reassign_until=0)
    with pytest.raises(InputError, match="HCLM has no setting 'reassign_every'"):
        build_method("hclm", small_data("classes"), {"reassign_every": 1})
    data = TrainingData.from_arrays(BITS, None, LABELS)
    assert data.labels is not None
    fewer = replace(data, labels=data.labels.subset(np.flatnonzero(LABELS != 7)))
    with (
        pytest.warns(match="Without a class similarity"),
        pytest.raises(InputError, match="The class 7 has no image, so proxies cannot be reassigned"),
    ):
        build_method("shclm", fewer, {"reassign_every": 1})
