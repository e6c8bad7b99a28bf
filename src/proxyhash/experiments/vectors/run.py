"""Runs of a comparison of encodings."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from proxyhash.data.vectors import VectorRows
from proxyhash.evaluation.compression import RankingTask
from proxyhash.evaluation.neighbors import exact_neighbors
from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.experiments.vectors.encodings import list_encodings
from proxyhash.experiments.vectors.report import EncodingResult, VectorEvalReport, main_k
from proxyhash.experiments.vectors.sample import VectorSample, draw_sample
from proxyhash.labels import Labels
from proxyhash.models.device import find_device
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

DEFAULT_KS = (1, 10, 100)


def evaluate_vectors(
    vectors: VectorRows | NDArray[Any],
    *,
    labels: Labels | None = None,
    queries: VectorRows | NDArray[Any] | None = None,
    query_labels: Labels | None = None,
    config: VectorEvalConfig | None = None,
    progress: Progress = no_progress,
) -> VectorEvalReport:
    """Measure what codes and other encodings of equal size keep of the exact ranking of vectors.

    Parameters
    ----------
    vectors
        Vectors (N, width) of floats; a memory-mapped array is read in chunks.
    labels
        Classes or tags of the vectors, for mAP and for methods that learn from them.
    queries
        Queries (Q, width); None to hold out random vectors, which are neither in the database nor fitted on.
    query_labels
        Classes or tags of the queries.
    config
        What is compared; None for the defaults.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    VectorEvalReport

    Raises
    ------
    InputError
        For vectors that are not finite, widths or labels that do not fit, k larger than the database, and a device that is
        not there.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
    >>> report = evaluate_vectors(vectors, config=VectorEvalConfig(bits=(16,), methods=("itq",), ks=(10,)))
    >>> report.rows[-1].title, report.rows[-1].bytes_per_item, report.rows[-1].recall
    ('float32', 64, {10: 1.0})
    """
    config = config or VectorEvalConfig()
    config = replace(config, device=find_device(config.device))  # one that is not there is an error before anything is done
    sample = draw_sample(vectors, labels, queries, query_labels, config)
    ks = _check_ks(config.ks, len(sample.database))
    count = min(2 * max(ks), len(sample.database))  # more than k, to know the items that are as near as the k-th
    neighbors = exact_neighbors(sample.queries, sample.database, count, config.metric, progress=progress)
    task = sample.task(neighbors, ks)
    rows, left_out = _measure(sample, task, progress)
    deciding = main_k(ks)
    rows.sort(key=lambda row: (row.bytes_per_item, -row.recall[deciding]))
    notes = tuple(f"Left out: {', '.join(titles)}. {reason}" for reason, titles in left_out.items())
    size = {"database": len(sample.database), "queries": len(sample.queries), "width": sample.database.width}
    return VectorEvalReport(tuple(rows), notes, config, **size)


def _measure(
    sample: VectorSample, task: RankingTask, progress: Progress
) -> tuple[list[EncodingResult], dict[str, list[str]]]:
    """Return the rows, and the titles of encodings that do not suit the vectors, by the reason."""
    rows: list[EncodingResult] = []
    left_out: dict[str, list[str]] = {}
    encodings = list(list_encodings(sample.database.width, sample.config))
    for number, encoding in enumerate(encodings):
        progress(f"comparing encodings: {encoding.title}", number / len(encodings))
        try:
            rows += encoding.measure(sample, task, progress)
        except InputError as error:
            left_out.setdefault(str(error), []).append(encoding.title)
        if number + 1 == len(sample.config.methods) * len(sample.config.bits) and not rows:  # these come first
            raise InputError(next(iter(left_out)))
    progress("comparing encodings", 1.0)
    return rows, left_out


def _check_ks(ks: tuple[int, ...] | None, items: int) -> tuple[int, ...]:
    if ks is None:
        return tuple(k for k in DEFAULT_KS if k <= items)
    if max(ks) > items:
        raise InputError(f"k is {max(ks):,}, and the database has {items:,} vectors; choose a smaller k.")
    return tuple(sorted(ks))
