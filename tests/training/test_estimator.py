"""HashEncoder as an estimator of scikit-learn."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import proxyhash
from proxyhash import HashEncoder, Hasher, InputError, VectorHasher
from proxyhash.codes import pack, top_k

ESTIMATORS = [
    HashEncoder(1, method="itq"),  # some checks have vectors of one value, and ITQ has at most as many bits
    HashEncoder(12, epochs=1, hidden_dim=4),  # shclm if there are labels, as in most checks
    HashEncoder(16, method="itq-cca", normalize=False, output="signs"),
    HashEncoder(16, method="lsh", normalize=False, output="embeddings"),
]
Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]


def expected_failures(estimator: HashEncoder) -> dict[str, str]:
    if estimator.normalize:
        return {"check_estimators_dtypes": "It has a vector of zeros, which cannot be scaled to length 1."}
    return {}


@pytest.mark.filterwarnings("ignore::proxyhash.ProxyhashWarning")  # three classes have proxies that are equally far apart
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)  # type: ignore[untyped-decorator]
def test_scikit_learn_accepts_it_as_an_estimator(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> Arrays:
    vectors, classes = load_digits(return_X_y=True)
    return vectors[:600], classes[:600]


def test_outputs_hold_the_same_bits(digits: Arrays) -> None:
    encoder = HashEncoder(20).fit(digits[0])
    packed = encoder.transform(digits[0])
    assert packed.dtype == np.uint8
    assert packed.shape == (600, 3)
    signs = encoder.set_params(output="signs").transform(digits[0])
    assert set(np.unique(signs)) == {-1, 1}
    assert np.array_equal(pack(signs), packed)
    embeddings = encoder.set_params(output="embeddings").transform(digits[0])
    assert embeddings.dtype == np.float32
    assert np.array_equal(pack(embeddings >= 0), packed)


def test_neighbors_by_signs_are_those_by_packed_codes(digits: Arrays) -> None:
    encoder = HashEncoder(32, output="signs").fit(digits[0])
    signs = encoder.transform(digits[0])
    neighbors = KNeighborsClassifier(metric="hamming").fit(signs, digits[1])
    distances, _ = neighbors.kneighbors(signs[:50], 7)
    assert np.array_equal(np.rint(32 * distances), top_k(pack(signs[:50]), pack(signs), 7).distances)


def test_feature_names_follow_the_output(digits: Arrays) -> None:
    encoder = HashEncoder(12).fit(digits[0])
    assert encoder.get_feature_names_out().tolist() == ["hashencoder0", "hashencoder1"]
    assert len(encoder.set_params(output="signs").get_feature_names_out()) == 12
    table = encoder.set_output(transform="pandas").transform(digits[0][:3])
    assert table.shape == (3, 12)


def test_labels_are_learned_from_and_ignored_by_methods_without_labels(digits: Arrays) -> None:
    vectors, classes = digits
    learned = HashEncoder(16, epochs=6, batch_size=32, hidden_dim=256).fit(vectors[:500], classes[:500])
    assert learned.hasher_.class_names == tuple("0123456789")
    without = HashEncoder(16, method="itq").fit(vectors[:500], classes[:500])
    assert without.hasher_.class_names == ()
    assert np.array_equal(without.transform(vectors), HashEncoder(16).fit(vectors[:500]).transform(vectors))
    assert learned.score(vectors[500:], classes[500:]) > without.score(vectors[500:], classes[500:])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_indicator_matrix_is_tags(digits: Arrays, kind: str) -> None:
    import scipy.sparse

    vectors, classes = digits
    tags = np.stack([classes % 2 == 0, classes > 4, classes == 7], 1).astype(int)
    given = scipy.sparse.csr_matrix(tags) if kind == "sparse" else tags
    encoder = HashEncoder(16, method="itq-cca").fit(vectors, given)
    assert encoder.hasher_.class_names == ("0", "1", "2")
    assert encoder.score(vectors, given) > HashEncoder(16, method="lsh").fit(vectors).score(vectors, given)


def test_recall_of_neighbors_grows_with_bits(digits: Arrays) -> None:
    vectors = digits[0]
    recalls = [HashEncoder(bits).fit(vectors[:400]).score(vectors[400:]) for bits in (4, 16, 48)]
    assert 0 < recalls[0] < recalls[1] < recalls[2] < 1


def test_pipeline_and_grid_search_choose_parameters(digits: Arrays) -> None:
    vectors, classes = digits
    pipeline = make_pipeline(StandardScaler(), HashEncoder(method="itq", output="signs"), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"hashencoder__bits": [4, 32]}, cv=3).fit(vectors, classes)
    assert search.best_params_ == {"hashencoder__bits": 32}
    assert search.best_score_ > 0.75
    grid = {"method": ["itq", "random-rotation"], "bits": [8, 40]}
    search = GridSearchCV(HashEncoder(), grid, cv=3, error_score="raise").fit(vectors)
    assert search.best_params_["bits"] == 40
    grid = {"settings": [{"iterations": 0}, {"iterations": 50}]}
    assert GridSearchCV(HashEncoder(16), grid, cv=3).fit(vectors).best_params_ == {"settings": {"iterations": 50}}


def test_clones_pickles_and_saved_folders_give_the_same_codes(digits: Arrays, tmp_path: Path) -> None:
    vectors, classes = digits
    encoder = HashEncoder(16, epochs=2, hidden_dim=32).fit(vectors, classes)
    codes = encoder.transform(vectors)
    assert np.array_equal(clone(encoder).fit(vectors, classes).transform(vectors), codes)
    assert np.array_equal(pickle.loads(pickle.dumps(encoder)).transform(vectors), codes)
    encoder.hasher_.save(tmp_path / "encoder")
    loaded = Hasher.load(tmp_path / "encoder")
    assert isinstance(loaded, VectorHasher)
    assert np.array_equal(loaded.encode(vectors), codes)


def test_a_random_state_decides_the_codes(digits: Arrays) -> None:
    def fit(random_state: object) -> NDArray[Any]:
        return HashEncoder(32, random_state=random_state).fit_transform(digits[0])  # type: ignore[no-any-return]

    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))
    assert np.array_equal(fit(np.random.RandomState(3)), fit(np.random.RandomState(3)))


@pytest.mark.parametrize(
    ("parameters", "y", "sentence"),
    [
        ({"method": "itqq"}, None, "did you mean itq"),
        ({"settings": {"iteration": 3}}, None, "ITQ has no setting 'iteration'; did you mean iterations?"),
        ({"output": "floats"}, None, "There is no output 'floats'; choose from packed, signs, embeddings."),
        ({"bits": 65}, None, "ITQ finds at most 64 principal components, not 65 bits; lsh takes any number."),
        ({"bits": 0}, None, "bits must be at least 1"),
        ({"epochs": 0, "bits": 8}, None, "epochs must be at least 1"),
        ({"method": "shclm"}, None, "requires y to be passed, but the target y is None; itq learns without labels."),
        ({}, "continuous", "Unknown label type: continuous"),
        ({}, "short", "inconsistent numbers of samples"),
        ({}, "two outputs", "not multiclass-multioutput"),
        ({}, "one class", "The labels have one class"),
    ],
)
def test_mistakes_are_explained(digits: Arrays, parameters: dict[str, Any], y: str | None, sentence: str) -> None:
    vectors, classes = digits
    given = {
        None: None,
        "continuous": vectors[:, 2] + 0.5,
        "short": classes[:-1],
        "two outputs": np.stack([classes, classes], 1),
        "one class": np.zeros(len(classes), int),
    }[y]
    with pytest.raises(ValueError, match=sentence):
        HashEncoder(**parameters).fit(vectors, given)


def test_vectors_of_zeros_have_no_direction_unless_nothing_is_scaled(digits: Arrays) -> None:
    encoder = HashEncoder(8).fit(digits[0])
    with pytest.raises(InputError, match="row 0 is all zeros and has no direction; remove it, or do not normalize"):
        encoder.transform(np.zeros((1, 64)))
    assert HashEncoder(8, normalize=False).fit(digits[0]).transform(np.zeros((1, 64))).shape == (1, 1)
    with pytest.raises(NotFittedError):
        HashEncoder().transform(digits[0])


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "proxyhash.training.estimator")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"HashEncoder needs scikit-learn: pip install 'proxyhash\[sklearn\]'"):
        proxyhash.HashEncoder  # noqa: B018
