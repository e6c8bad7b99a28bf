"""Batches of an epoch as index arrays.

The batches are a function of the labels and a random generator: with `generator(seed, "batches", epoch)` a resumed run has
the batches of the uninterrupted one. Tagged images belong to no single class and use `shuffled_batches`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

Indices = NDArray[np.int64]


def shuffled_batches(images: int, batch_size: int, random: np.random.Generator) -> list[Indices]:
    """Return every image 0..images-1 once, in batches of at most `batch_size` whose sizes differ by at most one.

    Equal sizes avoid a tiny last batch with poor statistics for batch normalization.
    """
    images = check_int("images", images, minimum=1)
    batch_size = check_int("batch_size", batch_size, minimum=1)
    return np.array_split(random.permutation(images), -(-images // batch_size))


def class_balanced_batches(
    labels: ArrayLike, batch_size: int, samples_per_class: int, random: np.random.Generator
) -> list[Indices]:
    """Return batches of P = batch_size / samples_per_class classes with `samples_per_class` images each, for `labels` (N,).

    The images of a class are cut into groups of `samples_per_class`. The last group of a class is filled with its first
    images, so a smaller class repeats images. Fewer than P groups, drawn at random, are left out of an epoch. A batch holds
    two groups of a class only if the class has more groups than there are batches.
    """
    batches = count_balanced_batches(labels, batch_size, samples_per_class)
    together = batch_size // samples_per_class
    groups, classes = _group_by_class(np.asarray(labels), samples_per_class, random)
    dealt = random.permutation(len(groups))[: batches * together]
    piles = _stack_by_class(classes[dealt], batches)
    return [groups[dealt[chosen]].ravel() for chosen in _deal_batches(piles, batches, together, random)]


def count_balanced_batches(labels: ArrayLike, batch_size: int, samples_per_class: int) -> int:
    """Return the number of batches of `class_balanced_batches`; labels and sizes that give none are errors."""
    samples_per_class = check_int("samples_per_class", samples_per_class, minimum=2)
    batch_size = check_int("batch_size", batch_size, minimum=samples_per_class)
    if batch_size % samples_per_class:
        raise InputError(
            f"A batch of {batch_size} images cannot hold {samples_per_class} of each class: make it a multiple."
        )
    _, counts = np.unique(_check_labels(labels), return_counts=True)
    groups = int((-(-counts // samples_per_class)).sum())
    batches = groups // (batch_size // samples_per_class)
    if batches == 0:
        raise InputError(
            f"{groups} groups of {samples_per_class} images do not fill a batch of {batch_size}: make it smaller."
        )
    return batches


def _check_labels(labels: ArrayLike) -> NDArray[np.generic]:
    c = np.asarray(labels)
    if c.ndim != 1 or len(c) == 0:
        raise InputError(f"Labels must be one class an image, not of shape {c.shape}; for tags, use shuffled batches.")
    return c


def _group_by_class(labels: NDArray[np.generic], size: int, random: np.random.Generator) -> tuple[Indices, Indices]:
    """Cut each class into random groups (G, size) of its images; return them and their class numbers (G,)."""
    _, numbers = np.unique(labels, return_inverse=True)
    members = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    counts = [-(-len(images) // size) for images in members]
    # np.resize repeats an array from its start.
    groups = [np.resize(random.permutation(m), (count, size)) for m, count in zip(members, counts, strict=True)]
    return np.concatenate(groups), np.repeat(np.arange(len(members)), counts)


def _stack_by_class(classes: Indices, height: int) -> list[Indices]:
    """Return the positions of each class in piles of at most `height`; a batch takes at most one position of a pile."""
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(np.bincount(classes))[:-1])
    return [stack[i : i + height] for stack in by_class for i in range(0, len(stack), height)]


def _deal_batches(piles: list[Indices], batches: int, together: int, random: np.random.Generator) -> Iterator[Indices]:
    """Yield the positions of each batch, each from another pile, until all are empty.

    Piles are drawn with probabilities proportional to their remaining size. A pile as high as the number of remaining
    batches is always drawn, so all piles are empty at the end.
    """
    left = np.array([len(pile) for pile in piles])
    for to_come in range(batches, 0, -1):
        # The first arrivals of exponential clocks with these rates are a weighted draw without replacement.
        arrival = np.full(len(piles), np.inf)
        np.divide(random.exponential(size=len(piles)), left, out=arrival, where=left > 0)
        arrival[left == to_come] = -1
        chosen = np.argsort(arrival)[:together]
        left[chosen] -= 1
        yield np.array([piles[pile][left[pile]] for pile in chosen])
