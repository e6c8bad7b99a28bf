"""Classification of codes by softmax regression, the second task of the paper."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from proxyhash.codes.adc import unpack_subcodes
from proxyhash.codes.bits import check_packed, unpack
from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError


def classify_codes(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    bits: int,
    *,
    subcode_bits: int = 1,
    ridge: float = 1e-4,
    steps: int = 200,
) -> Metric:
    """Return the accuracy on query codes of softmax regression trained on database codes (packed, of `bits` bits).

    The regression sees codes as +1 and -1, or with `subcode_bits` above 1 as one-hot subcodes. It minimizes mean
    cross-entropy + ridge / 2 ||W||^2 by L-BFGS. A query of a class that the database lacks is never right.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_labels, db_labels
        Classes (Q,) and (N,).
    bits
        Number of bits of a code.
    subcode_bits
        Number of bits of a subcode, 1 for codes of independent bits.
    ridge
        Weight of the penalty.
    steps
        Largest number of L-BFGS steps.

    Returns
    -------
    Metric
        Accuracy.

    Raises
    ------
    InputError
        If there is not one label per code.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> codes = pack([[1, 1], [-1, -1]])
    >>> classify_codes(codes, ["cat", "dog"], codes, ["cat", "dog"], bits=2).value
    1.0
    """
    q, db = _regression_inputs(query_codes, bits, subcode_bits), _regression_inputs(db_codes, bits, subcode_bits)
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


def _regression_inputs(codes: ArrayLike, bits: int, subcode_bits: int) -> NDArray[np.float64]:
    """Return codes as regression sees them: (N, bits) of +1 and -1, or (N, bits / symbol * 2^symbol) of 0 and 1."""
    if subcode_bits == 1:
        return unpack(codes, bits).astype(np.float64)
    subcodes = unpack_subcodes(check_packed("Codes of symbols", codes), bits // subcode_bits, subcode_bits)
    return np.eye(2**subcode_bits)[subcodes].reshape(len(subcodes), -1)


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
