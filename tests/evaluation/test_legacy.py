import numpy as np
import pytest

from proxyhash import InputError, codes
from proxyhash.evaluation import mean_average_precision

Search = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def some_search(seed: int = 0) -> Search:
    """Signs and one-hot labels, as the scripts have them; the last class is rare, so that some queries find nothing."""
    random = np.random.default_rng(seed)
    q, db = (np.where(random.random((count, 12)) < 0.5, -1, 1).astype(np.float32) for count in (50, 400))
    chance = [0.45, 0.3, 0.24, 0.01]
    q_labels, db_labels = (np.eye(4, dtype=int)[random.choice(4, count, p=chance)] for count in (50, 400))
    q_labels[:5] = np.eye(4, dtype=int)[3]
    return q, q_labels, db, db_labels


def as_deephash_pytorch(search: Search, top: int) -> float:
    q, q_labels, db, db_labels = search
    total = 0.0
    for code, label in zip(q, q_labels, strict=True):
        ranking = np.argsort(0.5 * (db.shape[1] - np.dot(code, db.T)))
        hit = (np.dot(label, db_labels.T) > 0)[ranking][0:top]
        if hit.sum() > 0:
            places = np.where(hit)[0] + 1.0
            total += np.mean(np.linspace(1, hit.sum(), hit.sum()) / places)
    return total / len(q)


def as_hashnet(search: Search, top: int) -> float:
    q, q_labels, db, db_labels = search
    rankings = np.argsort(-np.dot(db, q.T), axis=0)
    scores = []
    for column, label in enumerate(q_labels):
        wanted = np.where(label == 0, -1, label)
        hit = (db_labels[rankings[:top, column]] == wanted).any(axis=1)
        precision = np.cumsum(hit) / np.arange(1, top + 1)
        if hit.any():
            scores.append((precision * hit).sum() / hit.sum())
    return float(np.mean(scores))


def as_talr(search: Search, top: int) -> float:
    q, q_labels, db, db_labels = search
    scores = []
    for code, label in zip(q, q_labels, strict=True):
        distance = (db.shape[1] - db @ code) / 2
        ranking = np.concatenate([np.flatnonzero(distance == d) for d in range(db.shape[1] + 1)])[:top]
        hit = (db_labels @ label > 0)[ranking]
        so_far = np.cumsum(hit)
        recall = so_far / hit.sum() if hit.any() else np.zeros(len(hit))
        gained = np.concatenate([[0], np.diff(recall)])
        scores.append((gained * so_far / np.arange(1, len(hit) + 1)).sum())
    return float(np.mean(scores))


SCRIPTS = {"deephash-pytorch": as_deephash_pytorch, "hashnet": as_hashnet, "talr": as_talr}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("top", [5, 60, 400])
@pytest.mark.parametrize("single", [False, True])
def test_each_script_is_reproduced(name: str, top: int, single: bool) -> None:
    search = some_search()
    q, q_labels, db, db_labels = search
    labels = (q_labels.argmax(axis=1), db_labels.argmax(axis=1)) if single else (q_labels, db_labels)
    result = mean_average_precision(codes.pack(q), labels[0], codes.pack(db), labels[1], top, legacy=name)
    assert result.value == pytest.approx(SCRIPTS[name](search, top), abs=1e-12)
    assert f"legacy {name}" in result.name


def test_without_a_cutoff_the_first_script_drops_the_last_item() -> None:
    search = some_search(1)
    q, q_labels, db, db_labels = search
    result = mean_average_precision(codes.pack(q), q_labels, codes.pack(db), db_labels, legacy="deephash-pytorch")
    assert result.value == pytest.approx(as_deephash_pytorch(search, -1), abs=1e-12)


def test_the_scripts_disagree_with_each_other_and_with_the_exact_value() -> None:
    q, q_labels, db, db_labels = some_search(2)
    packed = codes.pack(q), q_labels, codes.pack(db), db_labels
    values = [mean_average_precision(*packed, 60, legacy=name).value for name in SCRIPTS]
    values.append(mean_average_precision(*packed, 60, denominator="capped").value)
    assert len(set(np.round(values, 4))) == 4


def test_left_out_queries_are_reported_and_unknown_scripts_named() -> None:
    q, q_labels, db, db_labels = some_search(3)
    packed = codes.pack(q), q_labels, codes.pack(db), db_labels
    result = mean_average_precision(*packed, 5, legacy="hashnet")
    assert len(result.per_query) + result.without_relevant == 50
    assert "have no hit and are left out of the mean" in repr(result)
    with pytest.raises(InputError, match="choose from deephash-pytorch, hashnet, talr"):
        mean_average_precision(*packed, legacy="mine")
