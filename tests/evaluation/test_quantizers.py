import sys

import faiss
import numpy as np
import pytest

from proxyhash import InputError
from proxyhash.codes import pack
from proxyhash.data.vectors import VectorRows
from proxyhash.evaluation import compression, mean_average_precision
from proxyhash.evaluation.compression import RankingTask, score_codes, score_quantizer
from proxyhash.evaluation.neighbors import asymmetric_distances, exact_neighbors, neighbor_recall
from proxyhash.evaluation.quantizers import FaissPq, Float16, Float32, Int8, Quantizer, RaBitQ


def some_vectors(count: int, width: int, seed: int) -> np.ndarray:
    return (0.3 + np.random.default_rng(seed).normal(size=(count, width))).astype(np.float32)


def fitted(quantizer: Quantizer, vectors: np.ndarray) -> Quantizer:
    quantizer.fit(vectors)
    return quantizer


def distances(quantizer: Quantizer, queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return asymmetric_distances(quantizer.transform(queries), *quantizer.decode(quantizer.encode(vectors)))


def exact_distances(queries: np.ndarray, vectors: np.ndarray, metric: str) -> np.ndarray:
    products: np.ndarray = queries @ vectors.T
    squares: np.ndarray = np.square(vectors).sum(1)
    return np.asarray(squares - 2 * products if metric == "l2" else -2 * products)


@pytest.mark.parametrize(
    ("quantizer", "size", "shared"),
    [
        (Float32(20, "l2"), 80, 0),
        (Float16(20, "l2"), 40, 0),
        (Int8(20, "l2"), 20, 160),
        (RaBitQ(20, "l2"), 3 + 8, 4 * 20 * 21),
        (RaBitQ(20, "l2", 8), 1 + 8, 4 * 20 * 9),
        (FaissPq(20, "l2", 4), 4, 4 * 20 * 256),
        (FaissPq(20, "l2", 8, rotate=True), 8, 4 * 24 * (256 + 24)),  # 20 values are padded to 8 parts of 3
    ],
)
def test_codes_have_the_size_that_is_stated(quantizer: Quantizer, size: int, shared: int) -> None:
    codes = fitted(quantizer, some_vectors(300, 20, 0)).encode(some_vectors(5, 20, 1))
    assert codes.dtype == np.uint8
    assert codes.shape == (5, quantizer.size) == (5, size)
    assert quantizer.shared_size == shared


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize(("kind", "tolerance"), [(Float32, 1e-5), (Float16, 2e-2), (Int8, 0.3)])
def test_distances_of_fine_quantizers_are_close_to_exact_ones(kind: type, tolerance: float, metric: str) -> None:
    queries, vectors = some_vectors(10, 16, 0), some_vectors(200, 16, 1)
    found = distances(fitted(kind(16, metric), vectors), queries, vectors)
    np.testing.assert_allclose(found, exact_distances(queries, vectors, metric), atol=tolerance)


def test_int8_rounds_as_the_scalar_quantizer_of_faiss_does() -> None:
    vectors = some_vectors(200, 16, 0)
    theirs = faiss.IndexScalarQuantizer(16, faiss.ScalarQuantizer.QT_8bit)
    theirs.train(vectors)
    ours = fitted(Int8(16, "l2"), vectors)
    step = np.ptp(vectors, axis=0) / 255
    decoded = ours.reconstruct(ours.encode(vectors))
    assert (np.abs(decoded - vectors) <= 0.5001 * step).all()
    assert (np.abs(theirs.sa_decode(theirs.sa_encode(vectors)) - decoded) <= 1.01 * step).all()


def test_a_constant_dimension_and_values_outside_the_sample_are_encoded() -> None:
    sample = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    int8 = fitted(Int8(2, "l2"), sample)
    np.testing.assert_allclose(int8.reconstruct(int8.encode(np.array([[1.0, 9.0]], np.float32))), [[1.0, 1.0]])
    float16 = Float16(2, "l2")
    assert np.isfinite(float16.reconstruct(float16.encode(np.array([[1e9, -1e9]], np.float32)))).all()


def test_distances_of_pq_are_those_of_faiss() -> None:
    queries, vectors = some_vectors(5, 16, 0), some_vectors(400, 16, 1)
    ours = fitted(FaissPq(16, "l2", 4), vectors)
    theirs = faiss.IndexPQ(16, 4, 8)
    theirs.pq.cp.seed, theirs.pq.cp.min_points_per_centroid = 1, 1
    theirs.train(vectors)
    theirs.add(vectors)
    near, found = theirs.search(queries, 400)
    own = np.take_along_axis(distances(ours, queries, vectors), found, axis=1) + (queries**2).sum(1, keepdims=True)
    np.testing.assert_allclose(own, near, atol=1e-3)


def test_a_rotation_lowers_the_error_of_correlated_vectors() -> None:
    mixing = np.random.default_rng(5).normal(size=(16, 16)) * np.geomspace(1, 0.02, 16)[:, None]
    vectors = (some_vectors(2000, 16, 0) @ mixing).astype(np.float32)
    errors = []
    for rotate in (False, True):
        pq = fitted(FaissPq(16, "l2", 4, rotate=rotate), vectors)
        errors.append(np.square(pq.reconstruct(pq.encode(vectors)) - pq.transform(vectors)).sum())
    assert errors[1] < errors[0]


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_distances_of_rabitq_are_those_of_faiss(metric: str) -> None:
    queries, vectors = some_vectors(5, 64, 0), some_vectors(300, 64, 1)
    ours = fitted(RaBitQ(64, metric), vectors)
    rotated, turned = ((part - ours.mean) @ ours.projection for part in (vectors, queries))  # type: ignore[attr-defined]
    center = ours.mean @ ours.projection  # type: ignore[attr-defined]
    theirs = faiss.IndexRaBitQ(64, faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    theirs.qb = 0  # queries are not quantized
    theirs.train(rotated + center)
    theirs.add(rotated + center)
    near, found = theirs.search(turned + center, 300)
    own = np.take_along_axis(distances(ours, queries, vectors), found, axis=1)
    spread = (own - own.mean(1, keepdims=True)), (near - near.mean(1, keepdims=True)) * (1 if metric == "l2" else -2)
    np.testing.assert_allclose(*spread, atol=1e-2)


def test_estimates_of_rabitq_are_unbiased_over_rotations() -> None:
    queries, vectors = some_vectors(3, 32, 0), some_vectors(40, 32, 1)
    exact = exact_distances(queries, vectors, "ip")
    estimates = [distances(fitted(RaBitQ(32, "ip", seed=seed), vectors), queries, vectors) for seed in range(300)]
    own_mean = 2 * (queries @ vectors.mean(0))[:, None]  # the part of the distance that depends on the query only
    errors = np.mean(estimates, axis=0) - own_mean - exact
    errors -= errors.mean(1, keepdims=True)
    assert np.abs(errors).max() < 0.25 * np.std(exact)
    assert np.abs(errors).max() < 0.2 * np.abs(estimates[0] - np.mean(estimates, axis=0)).max()


def test_product_quantization_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs at least 256 vectors"):
        FaissPq(8, "l2", 4).fit(some_vectors(255, 8, 0))
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match="pip install"):
        FaissPq(8, "l2", 4).fit(some_vectors(300, 8, 0))


@pytest.mark.parametrize("held", [True, False])
def test_scores_do_not_depend_on_the_memory_that_is_used(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    queries, database = some_vectors(30, 16, 0), VectorRows(some_vectors(500, 16, 1))
    labels = random.integers(0, 3, 30), random.integers(0, 3, 500)
    task = RankingTask(exact_neighbors(queries, database, 100, "l2"), (1, 10), *labels)
    int8 = fitted(Int8(16, "l2"), database[:])
    whole = score_quantizer(int8, queries, database, task)
    monkeypatch.setattr(compression, "MAX_DISTANCES", 7 * 500)
    monkeypatch.setattr(compression, "MAX_PAIRS", 2 * 500)
    if not held:
        monkeypatch.setattr(compression, "MAX_CODE_BYTES", 0)
    assert score_quantizer(int8, queries, database, task) == whole
    expected = neighbor_recall(distances(int8, queries, database[:]), task.neighbors, task.ks).mean(0)
    assert list(whole.recall.values()) == pytest.approx(expected.tolist())


def test_map_of_a_quantizer_is_that_of_equal_real_codes() -> None:
    """Signs are codes: as vectors, ranked by inner product, they have the mAP and the recall of the packed codes."""
    random = np.random.default_rng(0)
    q, db = (np.where(random.random((count, 16)) < 0.5, -1, 1).astype(np.float32) for count in (20, 200))
    q_labels, db_labels = random.integers(0, 4, 20), random.integers(0, 4, 200)
    vectors = VectorRows(db + 0.1 * random.normal(size=db.shape).astype(np.float32))
    task = RankingTask(exact_neighbors(q, vectors, 50, "ip"), (1, 10), q_labels, db_labels)
    as_codes = score_codes(pack(q), pack(db), task)
    as_vectors = score_quantizer(Float32(16, "ip"), q, VectorRows(db), task)
    assert as_vectors.recall == pytest.approx(as_codes.recall)
    expected = mean_average_precision(pack(q), q_labels, pack(db), db_labels).value
    assert as_codes.mean_average_precision == pytest.approx(expected)
    assert as_vectors.mean_average_precision == pytest.approx(expected)


def test_unlabeled_queries_do_not_count_for_map() -> None:
    vectors = np.eye(4, dtype=np.float32)
    neighbors = exact_neighbors(vectors, VectorRows(vectors), 2, "ip")
    labels = np.array(["a", "b", "", "a"])
    scores = score_quantizer(
        Float32(4, "ip"), vectors, VectorRows(vectors), RankingTask(neighbors, (1,), labels, labels, np.array([1]))
    )
    assert scores.mean_average_precision == 1
