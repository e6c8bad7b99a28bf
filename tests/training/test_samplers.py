import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash import InputError
from proxyhash.training.samplers import class_balanced_batches, shuffled_batches
from proxyhash.utils.random import generator


@given(st.integers(1, 300), st.integers(1, 70), st.integers(0, 9))
def test_shuffled_batches_hold_every_image_once_in_equal_shares(images: int, batch_size: int, epoch: int) -> None:
    batches = shuffled_batches(images, batch_size, generator(0, "batches", epoch))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(images))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    assert len(batches) == int(np.ceil(images / batch_size))


CASES = {
    "sizes": st.lists(st.integers(1, 40), min_size=1, max_size=12),
    "together": st.integers(1, 6),
    "per_class": st.integers(2, 5),
    "seed": st.integers(0, 99),
}


def labels_of(sizes: list[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 7, sizes))


@given(**CASES)
def test_balanced_batches_are_groups_of_one_class_and_miss_less_than_a_batch(
    sizes: list[int], together: int, per_class: int, seed: int
) -> None:
    groups = sum(-(-size // per_class) for size in sizes)
    labels = labels_of(sizes, seed)
    if groups < together:
        with pytest.raises(InputError, match="do not fill a batch"):
            class_balanced_batches(labels, together * per_class, per_class, generator(seed, "batches", 0))
        return

    batches = np.stack(class_balanced_batches(labels, together * per_class, per_class, generator(seed, "batches", 0)))

    assert batches.shape == (groups // together, together * per_class)
    dealt = batches.reshape(-1, per_class)
    assert (labels[dealt] == labels[dealt[:, :1]]).all()
    visits = np.bincount(batches.ravel(), minlength=len(labels))
    assert (visits == 0).sum() <= (groups - batches.size // per_class) * per_class
    size_of = np.bincount(labels)[labels]
    assert (visits <= np.maximum(2, -(-per_class // size_of))).all()
    for group in dealt:  # no image twice, unless its class is too small
        assert len(set(group)) == min(per_class, size_of[group[0]])


@given(**CASES)
def test_batch_repeats_a_class_only_if_necessary(sizes: list[int], together: int, per_class: int, seed: int) -> None:
    labels = labels_of(sizes, seed)
    if sum(-(-size // per_class) for size in sizes) < together:
        return
    batches = class_balanced_batches(labels, together * per_class, per_class, generator(seed, "batches", 0))
    dealt = labels[np.stack(batches)[:, ::per_class]]
    for label in np.unique(dealt):
        in_batch = (dealt == label).sum(axis=1)
        assert in_batch.max() <= -(-in_batch.sum() // len(batches))


def test_with_equal_classes_every_image_is_seen_once_and_companions_change() -> None:
    labels = np.repeat(np.arange(20), 40)
    batches = class_balanced_batches(labels, 32, 4, generator(0, "batches", 0))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(800))
    companions = {tuple(sorted(set(labels[batch]))) for batch in batches}
    assert all(len(classes) == 8 for classes in companions)
    assert len(companions) > 20  # of 25 batches


def test_one_stream_gives_one_epoch_and_another_stream_another() -> None:
    labels = np.repeat(["cat", "dog", "owl"], 9)
    first, again, next_epoch = (
        np.stack(class_balanced_batches(labels, 6, 3, generator(5, "batches", epoch))) for epoch in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != next_epoch).any()


def test_small_classes_repeat_their_images() -> None:
    (batch,) = class_balanced_batches([0, 1, 1], 6, 3, generator(0, "batches", 0))
    assert sorted(batch)[:3] == [0, 0, 0]
    assert set(batch) == {0, 1, 2}


@pytest.mark.parametrize(
    ("labels", "batch_size", "per_class", "sentence"),
    [
        (np.zeros((4, 3), bool), 4, 2, "for tags, use shuffled batches"),
        ([], 4, 2, "one class an image"),
        ([0, 0, 1, 1], 5, 2, "A batch of 5 images cannot hold 2 of each class"),
        ([0, 0, 1, 1], 4, 1, "per_class must be at least 2"),
        ([0, 0, 1, 1], 2, 4, "batch_size must be at least 4"),
        ([0, 0, 1, 1], 8, 2, "2 groups of 2 images do not fill a batch of 8"),
    ],
)
def test_invalid_batches_are_refused(labels: list[int], batch_size: int, per_class: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        class_balanced_batches(labels, batch_size, per_class, generator(0))
