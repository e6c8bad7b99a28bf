"""Retrieval metrics that are exact and do not depend on the order of the database."""

from proxyhash.evaluation.classification import classify_codes, nearest_proxy_accuracy
from proxyhash.evaluation.metrics import (
    evaluate,
    mean_average_precision,
    mean_average_precision_within,
    precision_at,
    precision_recall_curve,
    precision_within,
    recall_at,
)
from proxyhash.evaluation.ndcg import ndcg
from proxyhash.evaluation.results import Curve, Metric
from proxyhash.evaluation.statistics import PairedTest, bootstrap_interval, paired_test, per_class

__all__ = [
    "Curve",
    "Metric",
    "PairedTest",
    "bootstrap_interval",
    "classify_codes",
    "evaluate",
    "mean_average_precision",
    "mean_average_precision_within",
    "ndcg",
    "nearest_proxy_accuracy",
    "paired_test",
    "per_class",
    "precision_at",
    "precision_recall_curve",
    "precision_within",
    "recall_at",
]
