"""Retrieval metrics from codes and labels.

Queries and database are packed codes (Q, bytes) and (N, bytes). Labels are classes (Q,) and (N,), or matrices of tags (Q, T)
and (N, T) of 0 and 1, where items that share a tag are relevant.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from proxyhash.cutoff import DENOMINATORS, check_denominator, map_name
from proxyhash.evaluation import precision
from proxyhash.evaluation.average_precision import TIES, Scores, average_precision
from proxyhash.evaluation.counts import TieCounts, count_ties, distance_rows
from proxyhash.evaluation.legacy import legacy_mean_average_precision
from proxyhash.evaluation.real_distances import count_real_ties
from proxyhash.evaluation.results import Metric, PrecisionRecallCurve
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

DEFAULT_KS = (1, 10, 100)  # of precision@k and recall@k

Retrieval = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
"""Query codes, query labels, database codes, database labels."""


def mean_average_precision(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    top: int | None = None,
    ties: str = "expected",
    denominator: str = "relevant",
    *,
    bit_weights: ArrayLike | None = None,
    legacy: str | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Metric:
    """Return the mean average precision, by default the exact mean over all orders of tied items.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes); queries may also be real values (Q, bits) or
        tables (Q, M, k), see `codes.adc`.
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    top
        Number of nearest items that count; by default all.
    ties
        `expected`, `best`, `worst`, or `stable`: ties in the order of the database, on which the result then depends.
    denominator
        Divisor of the sum of precisions: `relevant` (all R relevant items), `capped` (min(R, top)) or `retrieved` (the
        relevant items among the top, as in many scripts). Without `top` they are the same.
    bit_weights
        Weights (bits,) of a weighted Hamming distance.
    legacy
        Name of a script whose result is reproduced, see `proxyhash.evaluation.legacy`.
    threads
        Number of threads; by default all cores.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    Metric
        Mean over queries.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> mean_average_precision(q, [0], db, [0, 1, 0])
    mAP [ties expected] = 0.8333 (mean of 1 queries)
    >>> mean_average_precision(q, [0], db, [0, 1, 0], top=2, denominator="retrieved")
    mAP@2[retrieved] [ties expected] = 1.0000 (mean of 1 queries)
    """
    top = None if top is None else check_int("top", top, minimum=1)
    search = (query_codes, query_labels, db_codes, db_labels)
    if legacy is not None:
        return legacy_mean_average_precision(legacy, *search, top)
    if ties not in TIES:
        raise InputError(f"There is no way {ties!r} to treat ties; choose from {', '.join(TIES)}.")
    check_denominator(denominator)
    parts = _rankings(search, ties, bit_weights, threads, progress, beyond_relevant=False)
    name = _map_name(top, denominator, ties, is_real=_is_real(query_codes, bit_weights))
    return _metric(name, parts, lambda part: average_precision(part, top, ties, denominator))


def _map_name(top: int | None, denominator: str, ties: str, *, is_real: bool) -> str:
    return f"{map_name(top, denominator)} [{'real distances, ' if is_real else ''}ties {ties}]"


def precision_at(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    k: int,
    *,
    bit_weights: ArrayLike | None = None,
    threads: int | None = None,
) -> Metric:
    """Return the expected share of relevant items among the k nearest.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes); queries may also be real values (Q, bits) or
        tables (Q, M, k), see `codes.adc`.
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    k
        Number of nearest items.
    bit_weights
        Weights (bits,) of a weighted Hamming distance.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    Metric
        Mean over queries.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> precision_at(q, [0], db, [0, 1, 0], k=2).value
    0.5
    """
    k = check_int("k", k, minimum=1)
    parts = _rankings((query_codes, query_labels, db_codes, db_labels), "expected", bit_weights, threads)
    return _metric(f"precision@{k} [ties expected]", parts, lambda part: precision.precision_at(part, k))


def recall_at(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    k: int,
    *,
    bit_weights: ArrayLike | None = None,
    threads: int | None = None,
) -> Metric:
    """Return the expected share of all relevant items that is among the k nearest.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes); queries may also be real values (Q, bits) or
        tables (Q, M, k), see `codes.adc`.
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    k
        Number of nearest items.
    bit_weights
        Weights (bits,) of a weighted Hamming distance.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    Metric
        Mean over queries.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> recall_at(q, [0], db, [0, 1, 0], k=2).value
    0.5
    """
    k = check_int("k", k, minimum=1)
    parts = _rankings((query_codes, query_labels, db_codes, db_labels), "expected", bit_weights, threads)
    return _metric(f"recall@{k} [ties expected]", parts, lambda part: precision.recall_at(part, k))


def precision_within_radius(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    radius: int = 2,
    *,
    threads: int | None = None,
) -> Metric:
    """Return the share of relevant items among those within a Hamming radius; a query without results scores 0.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    radius
        Largest Hamming distance.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    Metric
        Mean over queries.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> precision_within_radius(q, [0], db, [0, 1, 0], radius=1).value
    0.5
    """
    radius = check_int("radius", radius, minimum=0)
    counts = [count_ties(query_codes, query_labels, db_codes, db_labels, threads=threads)]
    return _metric(f"precision within radius {radius}", counts, lambda part: precision.precision_within_radius(part, radius))


def mean_average_precision_within_radius(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    radius: int = 2,
    *,
    threads: int | None = None,
) -> Metric:
    """Return the mean average precision over the items within a Hamming radius; a query without results scores 0.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    radius
        Largest Hamming distance.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    Metric
        Mean over queries.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> mean_average_precision_within_radius(q, [0], db, [0, 1, 0], radius=1).value
    1.0
    """
    radius = check_int("radius", radius, minimum=0)
    counts = [count_ties(query_codes, query_labels, db_codes, db_labels, threads=threads)]
    return _metric(
        f"mAP within radius {radius}", counts, lambda part: precision.average_precision_within_radius(part, radius)
    )


def precision_recall_curve(
    query_codes: ArrayLike, query_labels: ArrayLike, db_codes: ArrayLike, db_labels: ArrayLike, *, threads: int | None = None
) -> PrecisionRecallCurve:
    """Return mean precision against mean recall when all items up to each distance are retrieved.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    PrecisionRecallCurve
        One point per distance.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> precision_recall_curve(q, [0], db, [0, 1, 0]).precision[:2].tolist()
    [1.0, 0.5]
    """
    recall, shares = precision.precision_recall(count_ties(query_codes, query_labels, db_codes, db_labels, threads=threads))
    return PrecisionRecallCurve(recall, shares)


def evaluate(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    top: int | None = None,
    ks: tuple[int, ...] = DEFAULT_KS,
    *,
    denominator: str = "relevant",
    threads: int | None = None,
    progress: Progress = no_progress,
) -> list[Metric]:
    """Return the usual metrics from one pass over all pairs: mAP and its bounds, precision, recall, and radius 2.

    With a cutoff, mAP by the other denominators follows the bounds.

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes); queries may also be real values (Q, bits) or
        tables (Q, M, k), see `codes.adc`.
    query_labels, db_labels
        Classes (Q,) and (N,), or matrices of tags (Q, T) and (N, T) of 0 and 1.
    top
        Number of nearest items that count for mAP; by default all.
    ks
        Numbers of nearest items for precision and recall.
    denominator
        Divisor of the first mAP, see `mean_average_precision`.
    threads
        Number of threads; by default all cores.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    list of Metric
        The first is mAP; real-valued distances have no metrics within a radius.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> [metric.name for metric in evaluate(q, [0], db, [0, 1, 0])][:2]
    ['mAP [ties expected]', 'mAP [ties worst]']
    """
    top = None if top is None else check_int("top", top, minimum=1)
    real = _is_real(query_codes, None)
    scorers = _usual_scorers(top, check_denominator(denominator), ks, is_real=real)
    parts = _rankings((query_codes, query_labels, db_codes, db_labels), "expected", None, threads, progress)
    scores: dict[str, list[Scores]] = {name: [] for name in scorers}
    no_relevant = 0
    for part in parts:  # counts of real distances come in chunks, which are too large to keep
        no_relevant += int((part.total_relevant == 0).sum())
        for name, score in scorers.items():
            scores[name].append(score(part))
    return [Metric(name, np.concatenate(pieces), no_relevant) for name, pieces in scores.items()]


def _usual_scorers(
    top: int | None, denominator: str, ks: tuple[int, ...], *, is_real: bool
) -> dict[str, Callable[[TieCounts], Scores]]:
    kinds = [(ties, denominator) for ties in ("expected", "worst", "best")]
    kinds += [("expected", other) for other in DENOMINATORS if other != denominator and top is not None]
    scorers: dict[str, Callable[[TieCounts], Scores]] = {
        _map_name(top, below, ties, is_real=is_real): partial(average_precision, top=top, ties=ties, denominator=below)
        for ties, below in kinds
    }
    for k in ks:
        scorers[f"precision@{k} [ties expected]"] = partial(precision.precision_at, k=k)
        scorers[f"recall@{k} [ties expected]"] = partial(precision.recall_at, k=k)
    if not is_real:
        scorers["precision within radius 2"] = partial(precision.precision_within_radius, radius=2)
        scorers["mAP within radius 2"] = partial(precision.average_precision_within_radius, radius=2)
    return scorers


def _metric(name: str, parts: Iterable[TieCounts], score: Callable[[TieCounts], Scores]) -> Metric:
    """Return the metric of queries that are counted in chunks."""
    scored = [(score(part), part.total_relevant) for part in parts]
    scores, relevant = (np.concatenate(pieces) for pieces in zip(*scored, strict=True))
    return Metric(name, scores, int((relevant == 0).sum()))


def _is_real(query_codes: ArrayLike, bit_weights: ArrayLike | None) -> bool:
    return bit_weights is not None or np.asarray(query_codes).dtype.kind == "f"


def _rankings(
    search: Retrieval,
    ties: str,
    bit_weights: ArrayLike | None,
    threads: int | None,
    progress: Progress = no_progress,
    *,
    beyond_relevant: bool = True,
) -> Iterable[TieCounts]:
    """Count ties: Hamming distances all at once, real distances and stable orders in chunks."""
    if _is_real(search[0], bit_weights):
        if ties == "stable":
            raise InputError("Real-valued distances are ranked with ties expected, best or worst, not stable.")
        return count_real_ties(*search, bit_weights, threads=threads, progress=progress)
    if ties == "stable":
        return _stable_rankings(search)
    return [count_ties(*search, beyond_relevant=beyond_relevant, threads=threads, progress=progress)]


def _stable_rankings(search: Retrieval) -> Iterator[TieCounts]:
    """Yield rankings by distance and then position, as groups of one item, for some queries at a time."""
    for near, relevant in distance_rows(*search):
        order = np.argsort(near, axis=1, kind="stable")
        ranked = np.take_along_axis(relevant, order, axis=1).astype(np.int64)
        yield TieCounts(np.ones_like(ranked), ranked)
