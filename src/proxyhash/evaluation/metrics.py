"""The front door: metrics of a retrieval from codes and labels.

Queries and database are packed codes (Q, bytes) and (N, bytes); labels are classes (Q,) and (N,), or matrices of tags (Q, T)
and (N, T) of 0 and 1, where sharing a tag is relevant.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

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

    `top` cuts the ranking off (None: no cutoff). `ties` is `expected`, `best`, `worst`, or `stable`: the order of the
    database, which makes the result depend on it. `denominator` is what the sum of precisions is divided by: `relevant` (all
    relevant items), `capped` (at most `top`) or `retrieved` (the hits inside the top, as many scripts do).

    Queries may be real values (Q, bits) instead of packed codes, or tables (Q, M, k) as `codes.adc` has them, or bits may
    have weights: distances are then real numbers.

    `legacy` names a script whose number is to be reproduced, see `proxyhash.evaluation.legacy`.
    """
    top = None if top is None else check_int("top", top, minimum=1)
    search = (query_codes, query_labels, db_codes, db_labels)
    if legacy is not None:
        return legacy_mean_average_precision(legacy, *search, top)
    if ties not in TIES:
        raise InputError(f"There is no way {ties!r} to treat ties; choose from {', '.join(TIES)}.")
    parts = _rankings(search, ties, bit_weights, threads, progress, beyond_relevant=False)
    kind = "real distances, " if _is_real(query_codes, bit_weights) else ""
    name = f"mAP{_cutoff(top)} [{kind}ties {ties}, over {denominator}]"
    return _metric(name, parts, lambda part: average_precision(part, top, ties, denominator))


def _cutoff(top: int | None) -> str:
    return "" if top is None else f"@{top}"


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
    """Return the expected share of relevant items among the k nearest; queries and weights as for mAP."""
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
    """Return the expected share of all relevant items that is among the k nearest; queries and weights as for mAP."""
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
    """Return the share of relevant items among those at most `radius` bits away; nothing found counts 0."""
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
    """Return the mean average precision over the items at most `radius` bits away; nothing found counts 0."""
    radius = check_int("radius", radius, minimum=0)
    counts = [count_ties(query_codes, query_labels, db_codes, db_labels, threads=threads)]
    return _metric(
        f"mAP within radius {radius}", counts, lambda part: precision.average_precision_within_radius(part, radius)
    )


def precision_recall_curve(
    query_codes: ArrayLike, query_labels: ArrayLike, db_codes: ArrayLike, db_labels: ArrayLike, *, threads: int | None = None
) -> PrecisionRecallCurve:
    """Return mean precision against mean recall when everything up to each distance is retrieved."""
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
    threads: int | None = None,
    progress: Progress = no_progress,
) -> list[Metric]:
    """Return the usual metrics from one pass over all pairs: mAP and its bounds, precision and recall, and radius 2.

    Queries as for mAP; where distances are real numbers there is no radius.
    """
    top = None if top is None else check_int("top", top, minimum=1)
    real = _is_real(query_codes, None)
    scorers = _usual_scorers(top, ks, real)
    parts = _rankings((query_codes, query_labels, db_codes, db_labels), "expected", None, threads, progress)
    scores: dict[str, list[Scores]] = {name: [] for name in scorers}
    no_relevant = 0
    for part in parts:  # real distances come in pieces, and are too many to keep
        no_relevant += int((part.total_relevant == 0).sum())
        for name, score in scorers.items():
            scores[name].append(score(part))
    return [Metric(name, np.concatenate(pieces), no_relevant) for name, pieces in scores.items()]


def _usual_scorers(top: int | None, ks: tuple[int, ...], real: bool) -> dict[str, Callable[[TieCounts], Scores]]:
    kind = "real distances, " if real else ""
    scorers: dict[str, Callable[[TieCounts], Scores]] = {
        f"mAP{_cutoff(top)} [{kind}ties {ties}, over relevant]": partial(average_precision, top=top, ties=ties)
        for ties in ("expected", "worst", "best")
    }
    for k in ks:
        scorers[f"precision@{k} [ties expected]"] = partial(precision.precision_at, k=k)
        scorers[f"recall@{k} [ties expected]"] = partial(precision.recall_at, k=k)
    if not real:
        scorers["precision within radius 2"] = partial(precision.precision_within_radius, radius=2)
        scorers["mAP within radius 2"] = partial(precision.average_precision_within_radius, radius=2)
    return scorers


def _metric(name: str, parts: Iterable[TieCounts], score: Callable[[TieCounts], Scores]) -> Metric:
    """Score the queries part by part."""
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
    """Count ties in the way that fits: Hamming distances all at once, real ones and stable orders piece by piece."""
    if _is_real(search[0], bit_weights):
        if ties == "stable":
            raise InputError("Real-valued distances are ranked with ties expected, best or worst, not stable.")
        return count_real_ties(*search, bit_weights, threads=threads, progress=progress)
    if ties == "stable":
        return _stable_rankings(search)
    return [count_ties(*search, beyond_relevant=beyond_relevant, threads=threads, progress=progress)]


def _stable_rankings(search: Retrieval) -> Iterator[TieCounts]:
    """Yield, for some queries at a time, rankings by distance and then position: groups of one item each."""
    for near, relevant in distance_rows(*search):
        order = np.argsort(near, axis=1, kind="stable")
        ranked = np.take_along_axis(relevant, order, axis=1).astype(np.int64)
        yield TieCounts(np.ones_like(ranked), ranked)
