"""Embeddings of many images by a learner, and what they are worth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.images import Indices
from proxyhash.evaluation import mean_average_precision
from proxyhash.losses import binarization_error
from proxyhash.training.learner import Learner
from proxyhash.training.sources import Source

BATCH = 256

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Judged:
    """Images and what is known of them: what the evaluator compares, classes (n,) or tags (n, T), and the class as training
    numbers it (n,), -1 for one that training has not seen."""

    images: Indices
    relevance: NDArray[np.generic]
    classes: NDArray[np.int64] | None = None


@torch.inference_mode()
def embed(learner: Learner, source: Source, images: Indices) -> list[Floats]:
    """Return nu (n, bits) of the images, for each length."""
    learner.eval()
    device = next(learner.heads.parameters()).device
    parts: list[list[Tensor]] = []
    for inputs in source.testing([images[first : first + BATCH] for first in range(0, len(images), BATCH)]):
        parts.append([nu.cpu() for nu in learner(inputs.to(device))])
    return [torch.cat(list(nus)).numpy() for nus in zip(*parts, strict=True)]


def validation_metrics(
    learner: Learner,
    source: Source,
    queries: Judged,
    database: Judged,
    lengths: Sequence[int],
    top: int | None = None,
) -> dict[str, float]:
    """Return mAP (the mean over lengths, and each), accuracy by nearest proxy and binarisation error of the queries."""
    asked, searched = embed(learner, source, queries.images), embed(learner, source, database.images)
    metrics: dict[str, float] = {}
    for bits, nu, others, objective, head in zip(lengths, asked, searched, learner.methods, learner.coders, strict=True):
        search = head.encode_queries(nu), queries.relevance, head.encode(others), database.relevance
        metrics[f"map_{bits}"] = mean_average_precision(*search, top).value
        if head.metric == "hamming":
            metrics[f"binarisation_error_{bits}"] = float(binarization_error(torch.from_numpy(nu)).mean())
        scores = objective.scores(torch.from_numpy(nu).to(next(learner.heads.parameters()).device))
        if scores is not None and queries.classes is not None:
            known = queries.classes >= 0
            if known.any():
                right = scores.argmax(1).cpu().numpy()[known] == queries.classes[known]
                metrics[f"accuracy_{bits}"] = float(right.mean())
    return {"map": float(np.mean([metrics[f"map_{bits}"] for bits in lengths])), **metrics}
