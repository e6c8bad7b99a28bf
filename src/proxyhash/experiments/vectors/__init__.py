"""Comparison of codes of vectors with other encodings of equal size."""

from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.experiments.vectors.report import EncodingResult, VectorEvalReport
from proxyhash.experiments.vectors.run import evaluate_vectors

__all__ = ["EncodingResult", "VectorEvalConfig", "VectorEvalReport", "evaluate_vectors"]
