"""Similarity of classes and of tags, section 4.3 of the paper."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.utils.errors import InputError

Matrix = NDArray[np.floating]


def class_mean_similarity(features: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return the similarity of classes by their mean features, eq. (similarity).

    s_ij = exp(-||u_i - u_j||^2 / (2 kappa^2)), where u_i is the mean feature of class i, eq. (class_avg), and kappa the mean
    distance between two class means.

    Parameters
    ----------
    features
        Features (N, q).
    labels
        Classes (N,), integers from 0 to C - 1.

    Returns
    -------
    ndarray of float64
        Similarity (C, C).

    Raises
    ------
    InputError
        If shapes do not fit, a value is not finite or a class has no example.

    Examples
    --------
    >>> class_mean_similarity([[0.0], [0.0], [1.0], [3.0]], [0, 0, 1, 2]).round(3)  # kappa is (1 + 3 + 2) / 3 = 2
    array([[1.   , 0.882, 0.325],
           [0.882, 1.   , 0.607],
           [0.325, 0.607, 1.   ]])
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise InputError(f"Features {x.shape} and labels {y.shape} do not fit: (N, q) and (N,) are needed.")
    if not np.issubdtype(y.dtype, np.integer) or len(y) == 0 or y.min() < 0:
        raise InputError("Labels must be class numbers from 0 upwards, at least one.")
    if not np.isfinite(x).all():
        raise InputError("Features hold a value that is not finite.")
    counts = np.bincount(y)
    if (counts == 0).any():
        raise InputError(f"Class {int(counts.argmin())} has no example, so it has no mean.")
    means = np.zeros((len(counts), x.shape[1]))
    np.add.at(means, y, x)
    return _gaussian_kernel(means / counts[:, None])


def _gaussian_kernel(means: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.spatial.distance import pdist, squareform

    distances = pdist(means)
    kappa = distances.mean() if len(distances) else 0.0
    if kappa == 0:  # all means coincide
        return np.ones((len(means), len(means)))
    kernel: NDArray[np.float64] = np.exp(-(squareform(distances) ** 2) / (2 * kappa**2))
    return kernel


def tag_similarity(tags: ArrayLike) -> NDArray[np.float64]:
    """Return the similarity of tags by how often they occur together.

    s_ij = 2 sum_n t_ni t_nj / (sum_n t_ni + sum_n t_nj); s_ii = 0, and 0 for tags that never occur.

    Parameters
    ----------
    tags
        Matrix (N, T) of 0 and 1.

    Returns
    -------
    ndarray of float64
        Similarity (T, T).

    Raises
    ------
    InputError
        If `tags` is not a matrix of 0 and 1.

    Examples
    --------
    >>> tag_similarity([[1, 1, 0], [1, 0, 0], [0, 0, 1]]).round(3)
    array([[0.   , 0.667, 0.   ],
           [0.667, 0.   , 0.   ],
           [0.   , 0.   , 0.   ]])
    """
    t = np.asarray(tags)
    if t.ndim != 2 or not np.isin(t, (0, 1)).all():
        raise InputError("Tags must be a matrix (images, tags) of 0 and 1.")
    together = t.astype(np.float64).T @ t.astype(np.float64)
    counts = np.diag(together)
    either = counts[:, None] + counts
    similarity = np.divide(2 * together, either, out=np.zeros_like(together), where=either > 0)
    np.fill_diagonal(similarity, 0)
    return similarity


def check_similarity(similarity: ArrayLike, classes: int) -> Matrix:
    """Return a class similarity as a symmetric float matrix (C, C); other arrays are errors."""
    s = np.asarray(similarity)
    if s.dtype.kind not in "biuf":
        raise InputError(f"The similarity must hold real numbers, not {s.dtype}.")
    if s.ndim != 2 or s.shape[0] != s.shape[1]:
        raise InputError(f"The similarity must be a square matrix, not one of shape {s.shape}.")
    if len(s) != classes:
        raise InputError(f"The similarity is for {len(s)} classes, but {classes} are asked for.")
    s = s.astype(np.float32 if s.dtype == np.float32 else np.float64)
    if not np.isfinite(s).all():
        raise InputError("The similarity holds a value that is not finite.")
    if not np.allclose(s, s.T, rtol=1e-4, atol=1e-6 * float(np.abs(s).max())):
        raise InputError("The similarity must be symmetric.")
    symmetric: Matrix = (s + s.T) / 2  # solvers read rows instead of columns
    return symmetric
