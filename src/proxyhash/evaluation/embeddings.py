"""Metrics of embeddings before binarization."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

Array = TypeVar("Array", bound=Any)


def binarization_errors(embeddings: Array) -> Array:
    """Return `(|nu_k| - 1)^2 = (nu_k - sgn(nu_k))^2` for every entry: 0 is saturated, 1 undecided.

    The paper shows histograms of its mean over the bits of an image (section 5.2); its method does not minimize it.

    Parameters
    ----------
    embeddings
        NumPy array or torch tensor (N, d).

    Returns
    -------
    Same type as `embeddings`
        Squared errors (N, d).

    Examples
    --------
    >>> binarization_errors(np.array([[1.0, -0.5, 0.0]]))
    array([[0.  , 0.25, 1.  ]])
    """
    errors: Array = (abs(embeddings) - 1) ** 2
    return errors


def nearest_proxy_accuracy(nearest: ArrayLike, classes: ArrayLike) -> float | None:
    """Return how often the nearest proxy of an image is that of its class.

    Parameters
    ----------
    nearest
        Number of the class whose proxy is nearest (N,).
    classes
        Number of the true class (N,); -1 for a class without a proxy, which does not count.

    Returns
    -------
    float or None
        Accuracy over the images of known classes; None if there is none.

    Examples
    --------
    >>> nearest_proxy_accuracy([0, 2, 1, 0], [0, 1, 1, -1])
    0.6666666666666666
    """
    predicted, truth = np.asarray(nearest), np.asarray(classes)
    known = truth >= 0
    return float((predicted[known] == truth[known]).mean()) if known.any() else None
