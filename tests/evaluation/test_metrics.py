import numpy as np
import pytest

from proxyhash import InputError, codes, evaluation
from proxyhash.cutoff import DENOMINATORS
from proxyhash.evaluation import precision
from proxyhash.evaluation.counts import TieCounts, count_ties

Search = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "tags"])
def search(request: pytest.FixtureRequest) -> Search:
    random = np.random.default_rng(0)
    q, db = (codes.pack(random.random((count, 10)) < 0.5) for count in (40, 500))
    if request.param:
        return q, (random.random((40, 9)) < 0.1).astype(int), db, (random.random((500, 9)) < 0.1).astype(int)
    return q, random.integers(0, 6, 40), db, random.integers(0, 5, 500)


def relevant_matrix(q_labels: np.ndarray, db_labels: np.ndarray) -> np.ndarray:
    return np.asarray((q_labels @ db_labels.T) > 0 if q_labels.ndim == 2 else q_labels[:, None] == db_labels)


def test_the_expected_map_is_the_mean_over_shuffled_databases(search: Search) -> None:
    q, q_labels, db, db_labels = search
    random = np.random.default_rng(1)
    for top, denominator in ((None, "relevant"), (37, "capped"), (37, "retrieved")):
        expected = evaluation.mean_average_precision(q, q_labels, db, db_labels, top, "expected", denominator)
        shuffled = []
        for _ in range(150):
            order = random.permutation(len(db))
            result = evaluation.mean_average_precision(q, q_labels, db[order], db_labels[order], top, "stable", denominator)
            shuffled.append(result.value)
        assert expected.value == pytest.approx(np.mean(shuffled), abs=4 * np.std(shuffled) / np.sqrt(150) + 1e-9)


def test_stable_ties_keep_the_order_of_the_database(search: Search) -> None:
    q, q_labels, db, db_labels = search
    relevant = relevant_matrix(q_labels, db_labels)
    result = evaluation.mean_average_precision(q, q_labels, db, db_labels, top=60, ties="stable")
    for row, score in enumerate(result.per_query):
        order = np.argsort(codes.hamming_distances(q[row : row + 1], db)[0], kind="stable")[:60]
        ranks = np.flatnonzero(relevant[row][order]) + 1
        total = (np.arange(1, len(ranks) + 1) / ranks).sum()
        assert score == pytest.approx(total / max(1, relevant[row].sum()))


def test_worst_expected_and_best_are_in_that_order(search: Search) -> None:
    worst, expected, best = (
        evaluation.mean_average_precision(*search, ties=ties).per_query for ties in ("worst", "expected", "best")
    )
    assert (worst <= expected + 1e-12).all()
    assert (expected <= best + 1e-12).all()
    assert best.mean() > worst.mean()


def test_precision_and_recall_by_hand() -> None:
    # At distance 0 one relevant of two items, at distance 1 two of four, at distance 2 none of one.
    counts = TieCounts(np.array([[2, 4, 1], [0, 3, 0]]), np.array([[1, 2, 0], [0, 0, 0]]))
    np.testing.assert_allclose(precision.precision_at(counts, 1), [0.5, 0])
    np.testing.assert_allclose(precision.precision_at(counts, 4), [(1 + 2 * 2 / 4) / 4, 0])
    np.testing.assert_allclose(precision.precision_at(counts, 100), [3 / 7, 0])
    np.testing.assert_allclose(precision.recall_at(counts, 4), [2 / 3, 0])
    np.testing.assert_allclose(precision.precision_within_radius(counts, 0), [0.5, 0])
    np.testing.assert_allclose(precision.precision_within_radius(counts, 1), [0.5, 0])
    recall, shares = precision.precision_recall(counts)
    np.testing.assert_allclose(recall, [1 / 3, 1, 1])
    np.testing.assert_allclose(shares, [1 / 2, 1 / 2, 3 / 7])
    # Within distance 0: the hit comes first or second, each half of the time.
    np.testing.assert_allclose(precision.average_precision_within_radius(counts, 0), [(1 + 1 / 2) / 2, 0])


def test_one_pass_gives_the_same_as_single_metrics(search: Search) -> None:
    results = {metric.name: metric for metric in evaluation.evaluate(*search, top=50, ks=(7,))}
    single = [
        evaluation.mean_average_precision(*search, top=50),
        evaluation.mean_average_precision(*search, top=50, ties="worst"),
        evaluation.precision_at(*search, 7),
        evaluation.recall_at(*search, 7),
    ]
    for metric in single:
        np.testing.assert_array_equal(results[metric.name].per_query, metric.per_query)
    counts = count_ties(*search)
    np.testing.assert_array_equal(
        results["precision within radius 2"].per_query, precision.precision_within_radius(counts, 2)
    )


def test_one_pass_has_every_denominator_of_a_cutoff(search: Search) -> None:
    for first in DENOMINATORS:
        results = evaluation.evaluate(*search, top=50, denominator=first)
        assert results[0].name == f"mAP@50[{first}] [ties expected]"
        by_name = {metric.name: metric for metric in results}
        assert len(by_name) == len(results)
        for denominator in DENOMINATORS:
            single = evaluation.mean_average_precision(*search, top=50, denominator=denominator)
            np.testing.assert_array_equal(by_name[single.name].per_query, single.per_query)
    names = [metric.name for metric in evaluation.evaluate(*search)]
    assert [name for name in names if name.startswith("mAP")] == [
        *(f"mAP [ties {ties}]" for ties in ("expected", "worst", "best")),
        "mAP within radius 2",
    ]


def test_denominators_are_one_without_a_cutoff(search: Search) -> None:
    every = [evaluation.mean_average_precision(*search, denominator=denominator) for denominator in DENOMINATORS]
    for other in every[1:]:
        assert other.name == every[0].name == "mAP [ties expected]"
        np.testing.assert_allclose(other.per_query, every[0].per_query, rtol=1e-12)


def test_the_name_carries_the_protocol_and_queries_without_relevant_items_are_reported() -> None:
    packed = codes.pack([[1, -1], [1, 1]])
    metric = evaluation.mean_average_precision(packed, [0, 9], packed, [0, 0], top=2, denominator="capped")
    assert repr(metric) == (
        "mAP@2[capped] [ties expected] = 0.5000 (mean of 2 queries; 1 have no relevant item and count 0)"
    )
    assert metric.as_dict() == {"name": metric.name, "value": 0.5, "queries": 2, "without_relevant": 1}


def test_invalid_settings_are_errors() -> None:
    packed = codes.pack([[1, -1]])
    for settings, sentence in [
        ({"ties": "random"}, "choose from expected, best, worst, stable"),
        ({"denominator": "half"}, "choose from relevant, capped, retrieved"),
        ({"top": 0}, "top must be at least 1"),
    ]:
        with pytest.raises(InputError, match=sentence):
            evaluation.mean_average_precision(packed, [0], packed, [0], **settings)  # type: ignore[arg-type]


def test_shuffling_the_database_changes_no_metric(search: Search) -> None:
    q, q_labels, db, db_labels = search
    order = np.random.default_rng(9).permutation(len(db))
    shuffled = q, q_labels, db[order], db_labels[order]
    for one, two in zip(evaluation.evaluate(*search, top=50), evaluation.evaluate(*shuffled, top=50), strict=True):
        np.testing.assert_allclose(one.per_query, two.per_query, atol=1e-14)
    curves = [evaluation.precision_recall_curve(*s) for s in (search, shuffled)]
    np.testing.assert_array_equal(curves[0].precision, curves[1].precision)
    np.testing.assert_array_equal(curves[0].recall, curves[1].recall)
    assert repr(curves[0]).startswith("PrecisionRecallCurve(17 points, precision ")
    if q_labels.ndim == 2:
        one, two = (evaluation.ndcg(*s, top=20) for s in (search, shuffled))
        np.testing.assert_allclose(one.per_query, two.per_query, atol=1e-12)


def test_the_radius_can_be_chosen(search: Search) -> None:
    counts = count_ties(*search)
    for radius in (0, 3):
        ours = evaluation.precision_within_radius(*search, radius)
        np.testing.assert_array_equal(ours.per_query, precision.precision_within_radius(counts, radius))
        ours = evaluation.mean_average_precision_within_radius(*search, radius)
        np.testing.assert_array_equal(ours.per_query, precision.average_precision_within_radius(counts, radius))
