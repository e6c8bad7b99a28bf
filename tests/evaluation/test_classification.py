import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from proxyhash import InputError, codes
from proxyhash.codes.adc import pack_subcodes
from proxyhash.evaluation import classify_codes


def test_softmax_regression_equals_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    centers = np.where(random.random((5, 24)) < 0.5, -1, 1)
    labels = {name: random.integers(0, 5, count) for name, count in (("query", 300), ("database", 2000))}
    signs = {name: centers[y] * np.where(random.random((len(y), 24)) < 0.3, -1, 1) for name, y in labels.items()}

    ours = classify_codes(codes.pack(signs["query"]), labels["query"], codes.pack(signs["database"]), labels["database"], 24)

    peer = LogisticRegression(C=1 / (1e-4 * 2000), max_iter=2000).fit(signs["database"], labels["database"])
    assert ours.value == pytest.approx(peer.score(signs["query"], labels["query"]), abs=0.01)
    assert ours.value > 0.7
    agreement = (peer.predict(signs["query"]) == labels["query"]) == ours.per_query.astype(bool)
    assert agreement.mean() > 0.99


def test_subcodes_are_classified_as_one_hot_vectors() -> None:
    """Classes by single values of a subcode that no linear function of its bits tells apart: exclusive or."""
    subcodes = np.array([[0], [1], [2], [3]] * 10, np.uint8)
    classes = (subcodes[:, 0] == 1) | (subcodes[:, 0] == 2)
    packed = pack_subcodes(subcodes, 2)
    assert classify_codes(packed, classes, packed, classes, 2).value < 1
    assert classify_codes(packed, classes, packed, classes, 2, subcode_bits=2).value == 1


def test_an_unseen_class_is_never_right_and_is_reported() -> None:
    packed = codes.pack([[1, 1], [-1, -1]])
    result = classify_codes(packed, ["cat", "eel"], packed, ["cat", "dog"], 2)
    np.testing.assert_array_equal(result.per_query, [1, 0])
    assert result.without_relevant == 1
    with pytest.raises(InputError, match="query labels have shape"):
        classify_codes(packed, [0], packed, [0, 1], 2)
