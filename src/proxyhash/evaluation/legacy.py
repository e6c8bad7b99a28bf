"""Average precision as three well-known scripts compute it, with their defects, for comparison with older papers.

`deephash-pytorch` (swuxyj/DeepHash-pytorch) ranks by `np.argsort` of the distances and divides the precisions at hits inside
    the top by the number of these hits. Wrong: ties fall as an unstable sort leaves them, fewer hits are not punished, and
    without a cutoff the last item is dropped, because -1 is used as the end of a slice.
`hashnet` (thuml/HashNet) does the same, and leaves queries without a hit inside the top out of the mean. Wrong: as above,
    and the mean is over the other queries only.
`talr` (kunhe/TALR, its `AP`, not its tie-aware `tieAP`) keeps ties in the order of the database and sums precisions times
    differences of recall. Wrong: a hit at rank 1 gets no credit, since its difference is lost; fewer hits are not punished.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.evaluation.counts import distance_rows
from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError

Hits = NDArray[np.bool_]


def legacy_mean_average_precision(
    name: str,
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    top: int | None,
) -> Metric:
    """Return the score of the script called `name`, see the module."""
    if name not in LEGACY:
        raise InputError(f"There is no legacy script {name!r}; choose from {', '.join(LEGACY)}.")
    sort, score, keep_no_relevant = LEGACY[name]
    scores, hits = [], []
    # The first script passes -1 for "no cutoff" into a slice, which drops the last item.
    end = -1 if name == "deephash-pytorch" and top is None else top
    for near, relevant in distance_rows(query_codes, query_labels, db_codes, db_labels):
        for row, wanted in zip(near.astype(np.float32), relevant, strict=True):  # the type the scripts sort
            inside = wanted[sort(row)][:end]
            scores.append(score(inside))
            hits.append(bool(inside.any()))
    kept = np.array(scores)[np.array(hits) | keep_no_relevant]
    label = f"mAP{'' if top is None else f'@{top}'} [legacy {name}]"
    fate = "score 0" if keep_no_relevant else "are left out of the mean"
    return Metric(label, kept if len(kept) else np.zeros(1), hits.count(False), f"have no hit and {fate}")


def _unstable(row: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(row)  # unstable on purpose, as in the scripts


def _stable(row: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(row, kind="stable")


def _mean_precision_at_hits(inside: Hits) -> float:
    ranks = np.flatnonzero(inside) + 1.0
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def _without_rank_one(inside: Hits) -> float:
    ranks = np.flatnonzero(inside) + 1.0
    precisions = np.arange(1, len(ranks) + 1) / ranks
    return float(precisions[ranks > 1].sum() / len(ranks)) if len(ranks) else 0.0


LEGACY: dict[str, tuple[Callable[[NDArray[np.float32]], NDArray[np.int64]], Callable[[Hits], float], bool]] = {
    "deephash-pytorch": (_unstable, _mean_precision_at_hits, True),
    "hashnet": (_unstable, _mean_precision_at_hits, False),
    "talr": (_stable, _without_rank_one, True),
}
"""For each script: how it sorts, how it scores a ranking, and whether queries without a hit count."""
