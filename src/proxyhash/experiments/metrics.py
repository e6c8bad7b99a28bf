"""Metrics of a trial as a record holds them."""

from typing import Any

import numpy as np

from proxyhash.data import Dataset, Split
from proxyhash.evaluation.hasher import EncodedSplit, EvalReport, evaluate_hasher
from proxyhash.models.hasher import Hasher
from proxyhash.proxies.geometry import unit_rows

PRECISION_KS = (1, 10, 50, *range(100, 1001, 100))  # as the paper plots precision
HISTOGRAM_BINS = 20


def record_metrics(encoded: EncodedSplit, dataset: Dataset, split: Split) -> dict[str, Any]:
    """Evaluate the codes of a split; `map` is the mAP of the protocol."""
    report = evaluate_hasher(encoded, dataset, split, ks=PRECISION_KS, detailed=True)
    metrics = _retrieval_metrics(report)
    return metrics if encoded.hasher is None else metrics | _embedding_metrics(report, encoded.hasher)


def _retrieval_metrics(report: EvalReport) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "map": report.map,
        "queries_without_relevant": report.metrics[0].without_relevant,
        "all": {metric.name: metric.value for metric in report.metrics},
    }
    if (curve := report.precision_recall) is not None:
        metrics["precision_recall"] = {"recall": curve.recall.tolist(), "precision": curve.precision.tolist()}
    if report.classification is not None:
        metrics["classification"] = report.classification.value
    return metrics


def _embedding_metrics(report: EvalReport, hasher: Hasher) -> dict[str, Any]:
    """Return accuracy by nearest proxy, binarization errors of the queries, and the geometry of the proxies."""
    metrics: dict[str, Any] = {"accuracy": report.accuracy}
    if report.binarization_errors is not None:
        errors = report.binarization_errors.mean(1)
        metrics["binarization_error"] = float(errors.mean())
        metrics["binarization_histogram"] = np.histogram(errors, HISTOGRAM_BINS, (0, 1))[0].tolist()
    if hasher.proxies is not None:
        weights = hasher.proxies.weights
        weights = np.round(unit_rows(weights) * np.sqrt(weights.shape[1]), 6)  # learned proxies have any norm; 1 stays 1
        metrics["proxies"] = hasher.proxies.quality.as_dict()
        metrics["proxy_histogram"] = np.histogram(np.clip(weights, -2, 2), HISTOGRAM_BINS, (-2, 2))[0].tolist()
    return metrics
