"""The paper's second task: are the codes good for classification? And the network's own accuracy by nearest proxy."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from proxyhash.codes.bits import checked_packed, unpack
from proxyhash.codes.tables import unpack_symbols
from proxyhash.evaluation.result import Metric
from proxyhash.utils.errors import InputError


def classify_codes(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    bits: int,
    *,
    symbol: int = 1,
    ridge: float = 1e-4,
    steps: int = 200,
) -> Metric:
    """Return the accuracy on query codes of softmax regression trained on database codes (packed, of `bits` bits).

    Codes are seen as +1 and -1; those of symbols of `symbol` bits, which mean something only together, as one-hot symbols.
    Minimizes mean cross-entropy + ridge / 2 ||W||^2 by L-BFGS. A query of a class that the database lacks cannot be right.
    """
    q, db = _seen(query_codes, bits, symbol), _seen(db_codes, bits, symbol)
    q_labels, labels = np.asarray(query_labels), np.asarray(db_labels)
    for name, codes, given in (("query", q, q_labels), ("database", db, labels)):
        if given.shape != (len(codes),) or len(codes) == 0:
            raise InputError(f"The {name} labels have shape {given.shape}, but there are {len(codes)} {name} codes.")
    classes, targets = np.unique(labels, return_inverse=True)
    weights, bias = _softmax_regression(db, targets, len(classes), ridge, steps)
    right = classes[(q @ weights + bias).argmax(axis=1)] == q_labels
    return Metric(
        f"accuracy of softmax regression on codes [ridge {ridge:g}]",
        right.astype(np.float64),
        int((~np.isin(q_labels, classes)).sum()),
    )


def _seen(codes: ArrayLike, bits: int, symbol: int) -> NDArray[np.float64]:
    """Return codes as regression sees them: (N, bits) of +1 and -1, or (N, bits / symbol * 2^symbol) of 0 and 1."""
    if symbol == 1:
        return unpack(codes, bits).astype(np.float64)
    symbols = unpack_symbols(checked_packed("Codes of symbols", codes), bits // symbol, symbol)
    return np.eye(2**symbol)[symbols].reshape(len(symbols), -1)


def _softmax_regression(
    x: NDArray[np.float64], targets: NDArray[np.int64], classes: int, ridge: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (bits, C) and bias (C,)."""
    rows, bits = np.arange(len(x)), x.shape[1]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        matrix = flat.reshape(bits + 1, classes)
        logits = x @ matrix[:-1] + matrix[-1]
        chances = logits - logsumexp(logits, axis=1, keepdims=True)
        value = -chances[rows, targets].mean() + ridge / 2 * np.square(matrix[:-1]).sum()
        np.exp(chances, out=chances)
        chances[rows, targets] -= 1
        gradient = np.vstack([x.T @ chances, chances.sum(axis=0)]) / len(x)
        gradient[:-1] += ridge * matrix[:-1]
        return float(value), gradient.ravel()

    found = minimize(loss, np.zeros((bits + 1) * classes), jac=True, method="L-BFGS-B", options={"maxiter": steps})
    matrix = found.x.reshape(bits + 1, classes)
    return matrix[:-1], matrix[-1]


def nearest_proxy_accuracy(embeddings: ArrayLike, labels: ArrayLike, proxies: ArrayLike) -> Metric:
    """Return how often the proxy (C, d) with the largest product w.nu is that of the label, for embeddings (N, d)."""
    nu, w, y = np.asarray(embeddings, np.float64), np.asarray(proxies, np.float64), np.asarray(labels)
    if nu.ndim != 2 or w.ndim != 2 or nu.shape[1] != w.shape[1] or y.shape != nu.shape[:1]:
        raise InputError(
            f"Embeddings {nu.shape}, labels {y.shape} and proxies {w.shape} do not fit: (N, d), (N,) and (C, d)."
        )
    right = (nu @ w.T).argmax(axis=1) == y
    return Metric("accuracy by nearest proxy", right.astype(np.float64), 0)
