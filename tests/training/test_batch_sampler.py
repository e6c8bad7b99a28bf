"""Batches of a `DataLoader` with several samples of each class."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from proxyhash import ClassBalancedBatchSampler, InputError
from proxyhash.training.samplers import class_balanced_batches
from proxyhash.utils.random import generator

LABELS = np.arange(60) % 5


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    together=st.integers(1, 4),
    samples_per_class=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_length_is_the_number_of_batches(sizes: list[int], together: int, samples_per_class: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    try:
        sampler = ClassBalancedBatchSampler(labels, together * samples_per_class, samples_per_class, seed=seed)
    except InputError:
        assert sum(-(-size // samples_per_class) for size in sizes) < together
        return
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert all(len(batch) == together * samples_per_class for batch in batches)


def test_loader_gives_the_same_number_of_samples_of_each_class() -> None:
    data = TensorDataset(torch.arange(60), torch.from_numpy(LABELS))
    for workers in (0, 2):
        sampler = ClassBalancedBatchSampler(torch.from_numpy(LABELS), batch_size=12, samples_per_class=4)
        loader: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(data, batch_sampler=sampler, num_workers=workers)
        batches = list(loader)
        assert len(batches) == len(loader) == 5
        for _, labels in batches:
            assert torch.unique(labels, return_counts=True)[1].tolist() == [4, 4, 4]
        assert torch.equal(torch.cat([indices for indices, _ in batches]).sort().values, torch.arange(60))


def test_every_iteration_is_another_epoch_and_an_epoch_can_be_repeated() -> None:
    sampler = ClassBalancedBatchSampler(LABELS, 12, 4, seed=7)
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(1)
    assert list(sampler) == second
    expected = class_balanced_batches(LABELS, 12, 4, generator(7, "batches", 0))
    assert first == [batch.tolist() for batch in expected]
    assert first != list(ClassBalancedBatchSampler(LABELS, 12, 4, seed=8))


def test_labels_may_be_names() -> None:
    names = np.array(["cat", "dog"])[np.arange(16) % 2]
    (batch, *_) = ClassBalancedBatchSampler(names.tolist(), 4, 2)
    assert sorted(names[batch]) == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize(
    ("labels", "batch_size", "samples_per_class", "sentence"),
    [
        (np.zeros((4, 3)), 4, 2, "one class an image"),
        (LABELS, 10, 4, "A batch of 10 images cannot hold 4 of each class"),
        (LABELS, 10, 1, "samples_per_class must be at least 2"),
        (LABELS, 100, 4, "15 groups of 4 images do not fill a batch of 100"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    labels: np.ndarray, batch_size: int, samples_per_class: int, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        ClassBalancedBatchSampler(labels, batch_size, samples_per_class)
