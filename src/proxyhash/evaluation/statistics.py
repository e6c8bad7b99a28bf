"""Confidence intervals and paired tests from the scores of single queries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator

_MAX_DRAWS = 4_000_000


@dataclass(frozen=True)
class PairedTest:
    """Mean difference between two systems on the same queries, and its p-value.

    Examples
    --------
    >>> PairedTest(difference=0.02, p_value=0.01).p_value < 0.05
    True
    """

    difference: float
    p_value: float


def bootstrap_interval(metric: Metric, level: float = 0.95, samples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Return a bootstrap confidence interval of a metric over its queries.

    Parameters
    ----------
    metric
        A metric with scores per query.
    level
        Confidence level between 0 and 1.
    samples
        Number of resamplings.
    seed
        Seed of the resampling.

    Returns
    -------
    tuple of float
        Percentile interval.

    Raises
    ------
    InputError
        If the level is not between 0 and 1.

    Examples
    --------
    >>> low, high = bootstrap_interval(Metric("precision@1", np.array([1.0, 0.0, 1.0, 1.0]), 0))
    >>> 0 <= low <= 0.75 <= high <= 1
    True
    """
    if not 0 < level < 1:
        raise InputError(f"The level must lie between 0 and 1, not at {level}.")
    random, scores = generator(seed, "bootstrap"), metric.per_query
    size = max(1, _MAX_DRAWS // len(scores))
    means = [
        scores[random.integers(len(scores), size=(min(size, samples - first), len(scores)))].mean(axis=1)
        for first in range(0, samples, size)
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_test(one: Metric, other: Metric, samples: int = 10_000, seed: int = 0) -> PairedTest:
    """Compare two systems on the same queries by a two-sided paired randomization test.

    Parameters
    ----------
    one, other
        The same metric of two systems on the same queries.
    samples
        Number of random sign flips of the differences.
    seed
        Seed of the sign flips.

    Returns
    -------
    PairedTest
        Mean difference and p-value.

    Raises
    ------
    InputError
        If metrics or queries differ.

    Examples
    --------
    >>> metric = Metric("precision@1", np.array([1.0, 0.0, 1.0, 1.0]), 0)
    >>> paired_test(metric, metric).p_value
    1.0
    """
    if one.name != other.name or len(one.per_query) != len(other.per_query):
        raise InputError(f"Only the same metric on the same queries can be compared, not {one.name} and {other.name}.")
    differences = one.per_query - other.per_query
    observed = float(differences.mean())
    random = generator(seed, "paired test")
    size = max(1, _MAX_DRAWS // len(differences))
    as_large = 0
    for first in range(0, samples, size):
        signs = random.integers(0, 2, size=(min(size, samples - first), len(differences)), dtype=np.int8) * 2 - 1
        as_large += int((np.abs(signs @ differences) / len(differences) >= abs(observed) - 1e-15).sum())
    return PairedTest(observed, (as_large + 1) / (samples + 1))


def mean_per_class(metric: Metric, query_labels: ArrayLike) -> dict[str, float]:
    """Return the mean of a metric over the queries of each class.

    Parameters
    ----------
    metric
        A metric with scores per query (Q,).
    query_labels
        Classes of the queries (Q,).

    Returns
    -------
    dict of str to float
        Mean by class.

    Raises
    ------
    InputError
        If there is not one label per query.

    Examples
    --------
    >>> mean_per_class(Metric("precision@1", np.array([1.0, 0.0, 1.0]), 0), ["cat", "cat", "dog"])
    {'cat': 0.5, 'dog': 1.0}
    """
    labels = np.asarray(query_labels)
    if labels.shape != metric.per_query.shape:
        raise InputError(f"Labels of shape {labels.shape} do not fit {len(metric.per_query)} queries.")
    return {str(label): float(metric.per_query[labels == label].mean()) for label in np.unique(labels)}
