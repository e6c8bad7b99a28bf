"""Retrieval metrics that are exact and do not depend on the order of the database."""

from proxyhash.evaluation.classification import classify_codes, nearest_proxy_accuracy
from proxyhash.evaluation.metrics import (
    evaluate,
    mean_average_precision,
    mean_average_precision_within_radius,
    precision_at,
    precision_recall_curve,
    precision_within_radius,
    recall_at,
)
from proxyhash.evaluation.ndcg import ndcg
from proxyhash.evaluation.results import Metric, PrecisionRecallCurve
from proxyhash.evaluation.statistics import PairedTest, bootstrap_interval, mean_per_class, paired_test

__all__ = [
    "Metric",
    "PairedTest",
    "PrecisionRecallCurve",
    "bootstrap_interval",
    "classify_codes",
    "evaluate",
    "mean_average_precision",
    "mean_average_precision_within_radius",
    "mean_per_class",
    "ndcg",
    "nearest_proxy_accuracy",
    "paired_test",
    "precision_at",
    "precision_recall_curve",
    "precision_within_radius",
    "recall_at",
]
