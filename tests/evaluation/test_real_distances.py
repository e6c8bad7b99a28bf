from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyhash import InputError, codes
from proxyhash.codes.adc import pack_subcodes, table_scorer
from proxyhash.cutoff import DENOMINATORS
from proxyhash.evaluation import mean_average_precision, ndcg, precision_at, real_distances, recall_at
from proxyhash.evaluation.average_precision import TIES, average_precision
from proxyhash.evaluation.counts import TieCounts
from proxyhash.evaluation.precision import expected_hits
from proxyhash.evaluation.real_distances import count_real_ties


def some_search(bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(bits)
    q, db = (np.where(random.random((count, bits)) < 0.5, -1.0, 1.0) for count in (25, 300))
    return q, random.integers(0, 4, 25), db, random.integers(0, 4, 300)


@pytest.mark.parametrize("bits", [7, 8, 20])
@pytest.mark.parametrize("ties", ["expected", "best", "worst"])
def test_binary_queries_and_equal_weights_give_the_hamming_result(bits: int, ties: str) -> None:
    q, q_labels, db, db_labels = some_search(bits)
    hamming = mean_average_precision(codes.pack(q), q_labels, codes.pack(db), db_labels, 50, ties).per_query
    real = mean_average_precision(q, q_labels, codes.pack(db), db_labels, 50, ties)
    weighted = mean_average_precision(
        codes.pack(q), q_labels, codes.pack(db), db_labels, 50, ties, bit_weights=np.full(bits, 0.3)
    )
    np.testing.assert_allclose(real.per_query, hamming)
    np.testing.assert_allclose(weighted.per_query, hamming)
    assert "real distances" in real.name


def test_precision_and_recall_accept_real_queries() -> None:
    q, q_labels, db, db_labels = some_search(16)
    for metric in (precision_at, recall_at):
        hamming = metric(codes.pack(q), q_labels, codes.pack(db), db_labels, 30)
        np.testing.assert_allclose(metric(q, q_labels, codes.pack(db), db_labels, 30).per_query, hamming.per_query)
        weighted = metric(codes.pack(q), q_labels, codes.pack(db), db_labels, 30, bit_weights=np.full(16, 2.0))
        np.testing.assert_allclose(weighted.per_query, hamming.per_query)


def test_real_queries_and_weights_rank_as_a_full_sort() -> None:
    q, q_labels, db, db_labels = some_search(12)
    random = np.random.default_rng(5)
    real, weights = q * random.random(q.shape), random.random(12)
    for result, score in [
        (mean_average_precision(real, q_labels, codes.pack(db), db_labels), -real @ db.T),
        (
            mean_average_precision(codes.pack(q), q_labels, codes.pack(db), db_labels, bit_weights=weights),
            -(q * weights) @ db.T,
        ),
    ]:
        for row in range(len(q)):
            # Equal codes are tied: the mean over many random orders of them.
            scores = []
            for _ in range(60):
                shuffle = random.permutation(len(db))
                order = shuffle[np.argsort(np.round(score[row][shuffle], 9), kind="stable")]
                ranks = np.flatnonzero(db_labels[order] == q_labels[row]) + 1
                scores.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
            assert result.per_query[row] == pytest.approx(np.mean(scores), abs=5 * np.std(scores) / np.sqrt(60) + 1e-9)


def sorted_groups(distances: np.ndarray, relevant: np.ndarray) -> TieCounts:
    """Every tie a group of its own, by a full sort of one query's distances."""
    values, place = np.unique(np.round(distances, 9), return_inverse=True)
    counts = (np.bincount(place, weights, len(values)).astype(np.int64) for weights in (None, relevant))
    return TieCounts(*(count[None] for count in counts))


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from(["classes", "tags"]), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_items_between_relevant_ones_may_be_counted_together(seed: int, items: int, kind: str, threads: int) -> None:
    """No metric changes: all are those of a full sort, ties and cutoffs included."""
    random = np.random.default_rng(seed)
    tables = random.integers(0, 3, (5, 2, 4)) / 7  # few values: many ties
    packed = pack_subcodes(random.integers(0, 4, (items, 2)), 2)
    shape = () if kind == "classes" else (3,)
    asked, searched = (random.integers(0, 2 if shape else 4, (count, *shape)) for count in (5, items))
    found = list(count_real_ties(tables, asked, packed, searched, threads=threads))
    counts = TieCounts(*(np.concatenate([getattr(part, name) for part in found]) for name in ("items", "relevant")))
    near = table_scorer(tables, packed)(slice(None))
    relevant = (asked[:, None] == searched) if kind == "classes" else (asked @ searched.T > 0)
    for row in range(5):
        ours = TieCounts(counts.items[[row]], counts.relevant[[row]])
        theirs = sorted_groups(near[row], relevant[row])
        assert ours.max_items == theirs.max_items == items
        assert ours.total_relevant == theirs.total_relevant
        for k in (1, items // 2 + 1, items + 3):
            np.testing.assert_allclose(expected_hits(ours, k), expected_hits(theirs, k))
            for ties, denominator in product(TIES, DENOMINATORS):
                expected = average_precision(theirs, k, ties, denominator)
                np.testing.assert_allclose(average_precision(ours, k, ties, denominator), expected, atol=1e-12)


def test_many_queries_are_counted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    q, q_labels, db, db_labels = some_search(10)
    whole = mean_average_precision(q, q_labels, codes.pack(db), db_labels)
    monkeypatch.setattr(real_distances, "_MAX_PAIRS", 4 * len(db))
    told: list[float] = []
    cut = mean_average_precision(q, q_labels, codes.pack(db), db_labels, progress=lambda _, done: told.append(done))
    np.testing.assert_array_equal(cut.per_query, whole.per_query)
    assert told == sorted(told)
    assert (len(told), told[-1]) == (7, 1.0)


@pytest.mark.parametrize(
    ("queries", "weights", "sentence"),
    [
        (np.full((2, 8), np.nan), None, "finite numbers"),
        (np.ones((2, 9)), None, "9 bits and 9 weights do not fit a database of 1 bytes"),
        (np.zeros((2, 1), np.uint8), [1.0, 2.0, np.inf], "finite numbers, one for each bit"),
        (np.zeros((2, 1), np.uint8), [[1.0]], "one for each bit"),
        (np.ones((2, 8)), [1.0], "8 bits and 1 weights"),
    ],
)
def test_invalid_real_queries_are_errors(queries: np.ndarray, weights: list[float] | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        mean_average_precision(queries, [0, 1], np.zeros((3, 1), np.uint8), [0, 1, 2], bit_weights=weights)


def test_real_distances_are_not_ranked_by_position() -> None:
    with pytest.raises(InputError, match="not stable"):
        mean_average_precision(np.ones((1, 8)), [0], np.zeros((3, 1), np.uint8), [0, 1, 2], ties="stable")


def test_ndcg_is_the_mean_over_orders_of_ties() -> None:
    random = np.random.default_rng(0)
    q, db = (codes.pack(random.random((count, 4)) < 0.5) for count in (6, 40))
    q_tags, db_tags = ((random.random((count, 70)) < 0.1).astype(int) for count in (6, 40))
    for top in (None, 10):
        result = ndcg(q, q_tags, db, db_tags, top)
        gains = 2.0 ** (q_tags @ db_tags.T) - 1
        distances = codes.hamming_distances(q, db)
        cut = top or 40
        discount = 1 / np.log2(np.arange(2, cut + 2))
        for row in range(6):
            ideal = np.sort(gains[row])[::-1][:cut] @ discount
            scores = []
            for _ in range(400):
                shuffle = random.permutation(40)
                order = shuffle[np.argsort(distances[row][shuffle], kind="stable")]
                scores.append(gains[row][order][:cut] @ discount / ideal)
            assert result.per_query[row] == pytest.approx(np.mean(scores), abs=5 * np.std(scores) / 20 + 1e-9)


def test_ndcg_needs_tags_and_reports_queries_without_relevant_items() -> None:
    packed = np.zeros((2, 1), np.uint8)
    with pytest.raises(InputError, match="needs tags"):
        ndcg(packed, [0, 1], packed, [0, 1])
    result = ndcg(packed, [[1, 0], [0, 0]], packed, [[1, 0], [0, 1]])
    assert result.without_relevant == 1
    assert result.per_query[1] == 0
