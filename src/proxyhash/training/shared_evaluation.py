"""Queries shared by several processes: each is scored by one of them, and the numbers are those of a single process.

A query's score depends on its own counts only, all of them whole numbers; so every process scores its share, the scores are
brought into the order of the queries, and the mean is taken of the same array in the same order: equal to the last bit.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from proxyhash.evaluation import Metric, evaluate
from proxyhash.training.processes import Processes
from proxyhash.utils.progress import Progress, no_progress


def evaluate_shared(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    top: int | None = None,
    *,
    processes: Processes | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> list[Metric]:
    """Return what `evaluate` returns, in every process; each counts only for its share of the queries."""
    processes = processes or Processes()
    if processes.world == 1:
        return evaluate(query_codes, query_labels, db_codes, db_labels, top, threads=threads, progress=progress)
    codes, labels = np.asarray(query_codes), np.asarray(query_labels)
    count = len(codes)
    share = codes[processes.share(count)]
    # With fewer queries than processes some have no share: they score the first query, and nobody counts it.
    rows = processes.share(count) if len(share) else slice(0, 1)
    mine = evaluate(codes[rows], labels[rows], db_codes, db_labels, top, threads=threads, progress=progress)
    scores = np.stack([metric.per_query for metric in mine], axis=1)[: len(share)]
    whole = _gathered(processes, scores, count)
    lonely = _gathered(processes, np.array([[mine[0].without_relevant * bool(len(share))]]), processes.world)
    per_query = np.ascontiguousarray(whole.T)
    total = int(lonely.sum())
    return [replace(metric, per_query=row, without_relevant=total) for metric, row in zip(mine, per_query, strict=True)]


def _gathered(processes: Processes, rows: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the rows of all processes in the order of the `count` things they were shares of."""
    gathered: NDArray[Any] = processes.gather(torch.from_numpy(np.ascontiguousarray(rows)), count).numpy()
    return gathered
