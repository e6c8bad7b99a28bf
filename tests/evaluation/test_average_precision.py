from itertools import chain, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from sklearn.metrics import average_precision_score

from proxyhash import InputError, codes
from proxyhash.cutoff import DENOMINATORS
from proxyhash.evaluation import evaluate, mean_average_precision
from proxyhash.evaluation.average_precision import average_precision
from proxyhash.evaluation.counts import TieCounts, count_ties


def literal(relevant: list[int], in_all: int, top: int, denominator: str) -> float:
    """Average precision of one ranking, rank by rank."""
    hits, total = 0, 0.0
    for rank, hit in enumerate(relevant[:top], start=1):
        if hit:
            hits += 1
            total += hits / rank
    below = {"relevant": in_all, "capped": min(in_all, top), "retrieved": hits}[denominator]
    return total / below if below else 0.0


def all_orders(groups: list[list[int]]) -> list[list[int]]:
    """All rankings that keep the groups in order and permute the items inside."""
    rankings: list[list[int]] = [[]]
    for group in groups:
        rankings = [[*head, *tail] for head in rankings for tail in permutations(group)]
    return rankings


GROUPS = st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=1, max_size=3).filter(any)


@given(groups=GROUPS, top=st.integers(1, 9), denominator=st.sampled_from(DENOMINATORS))
def test_average_precision_is_the_mean_best_and_worst_of_all_orders(
    groups: list[list[int]], top: int, denominator: str
) -> None:
    counts = TieCounts(np.array([[len(g) for g in groups]]), np.array([[sum(g) for g in groups]]))
    in_all = sum(map(sum, groups))
    scores = [literal(order, in_all, top, denominator) for order in all_orders(groups)]

    def ours(ties: str) -> float:
        return float(average_precision(counts, top, ties, denominator)[0])

    assert ours("expected") == pytest.approx(np.mean(scores), abs=1e-12)
    first = [sorted(group, reverse=True) for group in groups]
    last = [sorted(group) for group in groups]
    assert ours("best") == pytest.approx(literal(list(chain(*first)), in_all, top, denominator), abs=1e-12)
    assert ours("worst") == pytest.approx(literal(list(chain(*last)), in_all, top, denominator), abs=1e-12)
    if denominator != "retrieved":  # dividing by the hits can reward having fewer of them
        assert ours("best") == pytest.approx(max(scores), abs=1e-12)
        assert ours("worst") == pytest.approx(min(scores), abs=1e-12)


@given(
    database=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2)), min_size=1, max_size=6),
    query=st.tuples(st.integers(0, 7), st.integers(0, 2)),
    top=st.integers(1, 7),
    denominator=st.sampled_from(DENOMINATORS),
    tagged=st.booleans(),
    queries=st.sampled_from([1, 40]),  # compared word by word, and bit-sliced
)
@settings(deadline=None)
def test_map_of_codes_is_the_mean_over_all_orders_of_tied_items(
    database: list[tuple[int, int]],
    query: tuple[int, int],
    top: int,
    denominator: str,
    tagged: bool,
    queries: int,
) -> None:
    distances = [(code ^ query[0]).bit_count() for code, _ in database]
    hits = [int(label == query[1]) for _, label in database]
    groups = [[hit for hit, near in zip(hits, distances, strict=True) if near == distance] for distance in range(4)]
    expected = np.mean([literal(order, sum(hits), top, denominator) for order in all_orders(groups)])

    def search(items: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        bits = [[code >> bit & 1 for bit in range(3)] for code, _ in items]
        classes = np.array([label for _, label in items])
        return codes.pack(bits), np.eye(3, dtype=int)[classes] if tagged else classes

    found = mean_average_precision(*search([query] * queries), *search(database), top, denominator=denominator)
    np.testing.assert_allclose(found.per_query, expected, atol=1e-12)
    metrics = {metric.name: metric.value for metric in evaluate(*search([query]), *search(database), top)}
    assert metrics[f"mAP@{top}[{denominator}] [ties expected]"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("groups", "top"),
    [
        ([(60_000, 20_000)], 31_000),
        ([(900, 30), (60_000, 20_000), (400, 400)], 31_000),
        ([(50, 0), (100_000, 3)], 2_000),
        ([(1_000_000, 999_000)], 999_500),
        ([(10, 10), (70_000, 70_000)], 50_000),
    ],
)
def test_denominator_of_a_large_cut_group_is_hypergeometric(groups: list[tuple[int, int]], top: int) -> None:
    counts = TieCounts(*(np.array([column]) for column in zip(*groups, strict=True)))
    before = next(number for number in range(len(groups)) if sum(n for n, _ in groups[: number + 1]) > top)
    whole, (n, r) = groups[:before], groups[before]
    N, R = sum(n for n, _ in whole), sum(r for _, r in whole)

    def sum_of_precisions(*parts: tuple[int, int]) -> float:
        found = TieCounts(*(np.array([column]) for column in zip(*parts, strict=True)))
        return float(average_precision(found)[0] * found.total_relevant[0])

    inside = np.arange(max(0, top - N - (n - r)), min(r, top - N) + 1)
    chances = hypergeom(n, r, top - N).pmf(inside)
    likely = [number for number in range(len(inside)) if chances[number] > 1e-6 * chances.max()]
    ratios = [sum_of_precisions(*whole, (top - N, int(inside[k]))) / max(1, R + inside[k]) for k in likely]
    expected = (chances[likely] * ratios).sum() / chances[likely].sum()
    assert average_precision(counts, top, denominator="retrieved")[0] == pytest.approx(expected, rel=1e-7)


def test_a_group_that_the_cutoff_does_not_reach_changes_nothing() -> None:
    near, far = TieCounts(np.array([[3, 7]]), np.array([[1, 2]])), TieCounts(np.array([[3, 7, 90]]), np.array([[1, 2, 80]]))
    for top in (3, 8, 10):
        for ties in ("expected", "best", "worst"):
            one, two = (average_precision(counts, top, ties, "retrieved") for counts in (near, far))
            np.testing.assert_array_equal(one, two)


def test_without_ties_average_precision_equals_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    relevant = random.random((20, 300)) < 0.2
    counts = TieCounts(np.ones((20, 300), np.int64), relevant.astype(np.int64))
    expected = [average_precision_score(row, -np.arange(300)) for row in relevant]
    for ties in ("expected", "best", "worst"):
        np.testing.assert_allclose(average_precision(counts, ties=ties), expected)


def some_search(seed: int, tagged: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    q, db = (codes.pack(random.random((count, 12)) < 0.5) for count in (30, 700))
    if tagged:
        return q, (random.random((30, 70)) < 0.03).astype(int), db, (random.random((700, 70)) < 0.03).astype(int)
    return q, random.integers(0, 7, 30), db, random.integers(0, 6, 700)  # class 6 has no item


@pytest.mark.parametrize("tagged", [False, True])
def test_counts_equal_those_of_a_full_matrix_for_any_number_of_threads(tagged: bool) -> None:
    q, q_labels, db, db_labels = some_search(1, tagged)
    relevant = (q_labels @ db_labels.T) > 0 if tagged else q_labels[:, None] == db_labels
    distances = codes.hamming_distances(q, db)
    for threads in (1, 2):
        counts = count_ties(q, q_labels, db, db_labels, threads=threads)
        for distance in range(17):
            np.testing.assert_array_equal(counts.items[:, distance], (distances == distance).sum(axis=1))
            np.testing.assert_array_equal(counts.relevant[:, distance], ((distances == distance) & relevant).sum(axis=1))


@pytest.mark.parametrize("tagged", [False, True])
def test_counts_of_many_queries_and_items_equal_those_of_a_full_matrix(tagged: bool) -> None:
    random = np.random.default_rng(5)
    q, db = (codes.pack(random.random((count, 64)) < 0.5) for count in (60, 20_000))  # planes, and what is left of them
    q_labels, db_labels = ((random.random((n, 70)) < 0.03).astype(int) for n in (60, 20_000))
    if not tagged:
        q_labels, db_labels = random.integers(0, 7, 60), random.integers(0, 6, 20_000)
    relevant = (q_labels @ db_labels.T) > 0 if tagged else q_labels[:, None] == db_labels
    distances = codes.hamming_distances(q, db)
    counts = count_ties(q, q_labels, db, db_labels)
    for found, weights in ((counts.items, np.ones_like(relevant)), (counts.relevant, relevant)):
        expected = [np.bincount(*row, minlength=65) for row in zip(distances, weights, strict=True)]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("tagged", [False, True])
def test_shuffling_the_database_changes_nothing(tagged: bool) -> None:
    q, q_labels, db, db_labels = some_search(2, tagged)
    order = np.random.default_rng(3).permutation(len(db))
    for ties in ("expected", "best", "worst"):
        for denominator in DENOMINATORS:
            one = average_precision(count_ties(q, q_labels, db, db_labels), 100, ties, denominator)
            two = average_precision(count_ties(q, q_labels, db[order], db_labels[order]), 100, ties, denominator)
            np.testing.assert_array_equal(one, two)


def test_labels_may_be_names() -> None:
    q, q_labels, db, db_labels = some_search(4, tagged=False)
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fly", "gnu"])
    one = count_ties(q, q_labels, db, db_labels)
    two = count_ties(q, names[q_labels], db, names[db_labels])
    np.testing.assert_array_equal(one.relevant, two.relevant)


@pytest.mark.parametrize(
    ("query_labels", "database_labels", "sentence"),
    [
        ([0], [0, 1], "query labels have shape .1,., but there are 2 query codes"),
        ([0, 1], [0, 1, 2], "database labels have shape"),
        ([[0, 1], [1, 0]], [0, 1], "cannot be compared"),
        ([[0, 1], [1, 0]], [[0], [1]], "cannot be compared"),
        ([[0, 2], [1, 0]], [[0, 1], [1, 0]], "of 0 and 1"),
        (["a", "b"], [0, 1], "cannot be compared"),
        ([0.0, np.nan], [0.0, 1.0], "all of them present"),
    ],
)
def test_labels_of_wrong_shape_are_errors(query_labels: list[int], database_labels: list[int], sentence: str) -> None:
    packed = np.zeros((2, 1), np.uint8)
    with pytest.raises(InputError, match=sentence):
        count_ties(packed, query_labels, packed, database_labels)


def test_unknown_settings_are_answered_with_the_known_ones() -> None:
    counts = TieCounts(np.ones((1, 3), np.int64), np.ones((1, 3), np.int64))
    with pytest.raises(InputError, match="choose from expected, best, worst"):
        average_precision(counts, ties="lucky")
    with pytest.raises(InputError, match="choose from relevant, capped, retrieved"):
        average_precision(counts, denominator="some")


@pytest.mark.parametrize("bits", [64, 128])
def test_items_beyond_the_last_relevant_one_do_not_change_average_precision(bits: int) -> None:
    random = np.random.default_rng(0)
    q, db = (random.integers(0, 256, (count, bits // 8), dtype=np.uint8) for count in (100, 9000))
    q_labels, db_labels = random.integers(0, 3000, 100), random.integers(0, 3000, 9000)
    q_labels[0] = 9999  # nothing is relevant
    search = (q, q_labels, db, db_labels)
    everything, enough = count_ties(*search), count_ties(*search, beyond_relevant=False)
    np.testing.assert_array_equal(enough.relevant, everything.relevant)
    assert (enough.items <= everything.items).all()
    if bits == 64:
        assert enough.items.sum() < everything.items.sum()
    for ties in ("expected", "best", "worst"):
        for denominator in ("relevant", "capped", "retrieved"):
            for top in (None, 50, 4000):
                one, other = (average_precision(counts, top, ties, denominator) for counts in (everything, enough))
                np.testing.assert_allclose(one, other, rtol=1e-12)
