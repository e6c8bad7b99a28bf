"""Quality of a proxy set: distances in bits, balance of bits and agreement with a class similarity."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.assignment import gain
from proxyhash.proxies.binary import bit_means, is_binary
from proxyhash.proxies.bounds import largest_min_distance, least_max_cosine
from proxyhash.proxies.bounds.assignment import cosine_sums, largest_gain, pearson
from proxyhash.proxies.geometry import Floats, nearest_points, unit_rows


@dataclass(frozen=True)
class AssignmentQuality:
    """Agreement of proxies with a class similarity s.

    `objective` is sum_{i != j} s_ij (1 - w_i.w_j / d), eq. (class_assignment); `random` its mean over all permutations;
    `bound` a lower bound over all permutations; `correlation` Pearson's, of s_ij and w_i.w_j over i < j.

    Examples
    --------
    >>> AssignmentQuality(objective=90.0, random=100.0, bound=80.0, correlation=0.6).share
    0.5
    """

    objective: float
    random: float
    bound: float
    correlation: float

    @property
    def share(self) -> float:
        """Position of the objective between random (0) and the bound (1)."""
        return (self.random - self.objective) / (self.random - self.bound) if self.random > self.bound else 0.0


@dataclass(frozen=True, eq=False)
class ProxyQuality:
    """Geometry of a proxy set. Distances are in bits, d (1 - cos) / 2, for binary and real proxies.

    Examples
    --------
    >>> quality = measure_quality(np.array([[1.0, 1.0], [-1.0, -1.0]]))
    >>> quality.min_distance, quality.distance_bound, quality.constant_bits
    (2.0, 2.0, 0)
    """

    min_distance: float
    """The smallest distance between two classes."""
    distance_bound: float
    """No set of so many classes and bits has a larger minimal distance (corners of the cube if binary, else the sphere)."""
    nearest_class: NDArray[np.int64]
    """For each class the nearest other one (C,)."""
    nearest_distance: NDArray[np.float64]
    """For each class the distance to it (C,)."""
    max_cosine: float
    bit_balance: float
    """The largest |mean over classes| of a bit: 0 is balanced, 1 is constant."""
    constant_bits: int
    """Number of bits that are the same for all classes."""
    assignment: AssignmentQuality | None = None

    @property
    def nearest_min(self) -> float:
        """The smallest distance from a class to its nearest other class."""
        return float(self.nearest_distance.min())

    @property
    def nearest_mean(self) -> float:
        """The mean over classes of the distance to the nearest other class."""
        return float(self.nearest_distance.mean())

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers by name, ready for JSON; NaN becomes None."""
        numbers: dict[str, Any] = {
            "min_distance": self.min_distance,
            "distance_bound": self.distance_bound,
            "nearest_min": self.nearest_min,
            "nearest_mean": self.nearest_mean,
            "max_cosine": self.max_cosine,
            "bit_balance": self.bit_balance,
            "constant_bits": self.constant_bits,
            "assignment": None,
        }
        if self.assignment:
            values = {field.name: getattr(self.assignment, field.name) for field in fields(self.assignment)}
            values["share"] = self.assignment.share
            numbers["assignment"] = {name: None if np.isnan(value) else value for name, value in values.items()}
        return numbers


def measure_quality(weights: Floats, similarity: Floats | None = None) -> ProxyQuality:
    """Measure the quality of proxies.

    Parameters
    ----------
    weights
        Proxies (C, d) with rows of norm sqrt(d).
    similarity
        Class similarity (C, C); with it the quality has an `assignment`.

    Returns
    -------
    ProxyQuality
        Distances, cosines and bit balance.

    Examples
    --------
    >>> measure_quality(np.array([[1.0, 1.0], [-1.0, -1.0]])).min_distance
    2.0
    """
    classes, bits = weights.shape
    binary = is_binary(weights)
    index, cosine = nearest_points(weights)
    distance = bits * (1 - cosine) / 2
    distance = np.round(distance) if binary else distance
    means = bit_means(weights)
    bound = largest_min_distance(classes, bits) if binary else bits * (1 - least_max_cosine(classes, bits)) / 2
    return ProxyQuality(
        min_distance=float(distance.min()),
        distance_bound=float(bound),
        nearest_class=index,
        nearest_distance=distance,
        max_cosine=float(1 - 2 * distance.min() / bits),
        bit_balance=float(np.abs(means).max()),
        constant_bits=int((np.abs(means) == 1).sum()),
        assignment=None if similarity is None else measure_assignment(weights, similarity),
    )


def measure_assignment(weights: Floats, similarity: Floats) -> AssignmentQuality:
    """Compare the assignment objective of proxies (C, d) with its mean over permutations and its bound."""
    unit = unit_rows(weights.astype(np.float64))
    total = float(similarity.sum(dtype=np.float64) - np.trace(similarity))
    mean_cosine = cosine_sums(unit)[0] / (len(unit) * (len(unit) - 1))
    reached = gain(similarity, unit)
    return AssignmentQuality(
        objective=total - reached,
        random=total * (1 - mean_cosine),
        bound=total - largest_gain(similarity, unit),
        correlation=pearson(similarity, unit, reached),
    )
