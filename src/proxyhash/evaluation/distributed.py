"""Evaluation by several processes that share the queries.

The score of a query depends only on its own counts, which are integers. Each process scores its shard, the scores are
gathered in the order of the queries, and the mean is taken over the same array as in one process: equal to the last bit.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from proxyhash.evaluation.metrics import DEFAULT_KS, evaluate
from proxyhash.evaluation.results import Metric
from proxyhash.utils.progress import Progress, no_progress

if TYPE_CHECKING:
    from proxyhash.utils.distributed import DistributedContext  # imports torch


def evaluate_distributed(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    top: int | None = None,
    ks: tuple[int, ...] = DEFAULT_KS,
    *,
    denominator: str = "relevant",
    context: "DistributedContext | None" = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> list[Metric]:
    """Return the metrics of `evaluate` in every process of `context`; each process scores a shard of the queries."""
    score = partial(evaluate, top=top, ks=ks, denominator=denominator, threads=threads, progress=progress)
    if context is None or context.world_size == 1:
        return score(query_codes, query_labels, db_codes, db_labels)
    codes, labels = np.asarray(query_codes), np.asarray(query_labels)
    shard = context.shard(len(codes))
    is_empty = len(codes[shard]) == 0  # with fewer queries than processes; the first query is then scored and ignored
    rows = slice(0, 1) if is_empty else shard
    metrics = score(codes[rows], labels[rows], db_codes, db_labels)
    scores, no_relevant = np.zeros((len(metrics), len(codes))), np.zeros(1, np.int64)
    if not is_empty:
        scores[:, shard] = [metric.per_query for metric in metrics]
        no_relevant[0] = metrics[0].without_relevant
    scores, no_relevant = context.all_reduce_sum(scores), context.all_reduce_sum(no_relevant)
    total = int(no_relevant[0])
    return [replace(metric, per_query=row, without_relevant=total) for metric, row in zip(metrics, scores, strict=True)]
