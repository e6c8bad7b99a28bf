"""Retrieval metrics that are exact and do not depend on the order of the database."""

from proxyhash.evaluation.metrics import evaluate, mean_average_precision, precision_at, recall_at
from proxyhash.evaluation.result import Metric

__all__ = ["Metric", "evaluate", "mean_average_precision", "precision_at", "recall_at"]
