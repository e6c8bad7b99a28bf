"""Exact retrieval metrics that do not depend on the order of the database."""

from typing import TYPE_CHECKING, Any

from proxyhash.evaluation.classification import classify_codes
from proxyhash.evaluation.embeddings import binarization_errors, nearest_proxy_accuracy
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

if TYPE_CHECKING:
    from proxyhash.evaluation.hasher import EncodedSplit, EvalReport, evaluate_hasher, load_eval_data

__all__ = [
    "EncodedSplit",
    "EvalReport",
    "Metric",
    "PairedTest",
    "PrecisionRecallCurve",
    "binarization_errors",
    "bootstrap_interval",
    "classify_codes",
    "evaluate",
    "evaluate_hasher",
    "load_eval_data",
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


def __getattr__(name: str) -> Any:
    """Import what needs a hasher when it is used, so that metrics of codes do not import torch."""
    if name in ("EncodedSplit", "EvalReport", "evaluate_hasher", "load_eval_data"):
        from proxyhash.evaluation import hasher

        return getattr(hasher, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
