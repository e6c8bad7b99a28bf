"""Validation of a model between epochs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.images import Indices
from proxyhash.evaluation import binarization_errors, mean_average_precision, nearest_proxy_accuracy
from proxyhash.models.precision import move_batch
from proxyhash.training.inputs import InputSource
from proxyhash.training.model import MultiHeadModel

BATCH_SIZE = 256

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class EvalSubset:
    """Validation images: `indices` into the source, labels for the evaluation, and class numbers of the training."""

    indices: Indices
    relevance: NDArray[np.generic]  # Classes (n,) or tags (n, T).
    classes: NDArray[np.int64] | None = None  # (n,), -1 for a class that is not trained on; None for tags.


@torch.inference_mode()
def embed_subset(model: MultiHeadModel, source: InputSource, indices: Indices) -> list[Floats]:
    """Return the embeddings nu (n, bits) of images for each code length."""
    model.eval()
    device = next(model.heads.parameters()).device
    parts: list[list[Tensor]] = []
    batches = [indices[first : first + BATCH_SIZE] for first in range(0, len(indices), BATCH_SIZE)]
    for inputs in source.eval_batches(batches):
        parts.append([nu.cpu() for nu in model(move_batch(inputs, device))])
    return [torch.cat(list(nus)).numpy() for nus in zip(*parts, strict=True)]


def compute_validation_metrics(
    model: MultiHeadModel,
    source: InputSource,
    queries: EvalSubset,
    database: EvalSubset,
    bits: Sequence[int],
    top: int | None = None,
    denominator: str = "relevant",
) -> dict[str, float]:
    """Return mAP (of each code length and the mean), nearest-proxy accuracy and binarization error of the queries.

    The binarization error is left out for heads whose outputs are not bounded.
    """
    query_embeddings = embed_subset(model, source, queries.indices)
    db_embeddings = embed_subset(model, source, database.indices)
    device = next(model.heads.parameters()).device
    metrics: dict[str, float] = {}
    rows = zip(bits, query_embeddings, db_embeddings, model.objectives, model.heads, strict=True)
    for length, nu, db_nu, objective, head in rows:
        search = head.encode_queries(nu), queries.relevance, head.encode(db_nu), database.relevance
        metrics[f"map_{length}"] = mean_average_precision(*search, top, denominator=denominator).value
        if head.is_bounded:
            metrics[f"binarization_error_{length}"] = float(binarization_errors(torch.from_numpy(nu)).mean(1).mean())
        scores = objective.scores(torch.from_numpy(nu).to(device))
        if scores is not None and queries.classes is not None:
            accuracy = nearest_proxy_accuracy(scores.argmax(1).cpu().numpy(), queries.classes)
            if accuracy is not None:
                metrics[f"accuracy_{length}"] = accuracy
    return {"map": float(np.mean([metrics[f"map_{length}"] for length in bits])), **metrics}
