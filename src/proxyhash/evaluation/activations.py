"""Embeddings of a split from cached activations of a partially fine-tuned network."""

import numpy as np
import torch
from numpy.typing import NDArray

from proxyhash.data import Dataset, Split
from proxyhash.models.activation_cache import cached_activations, to_inputs
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.device import module_device
from proxyhash.models.hasher import Hasher
from proxyhash.models.onnx_backend import Floats
from proxyhash.utils.progress import Progress

BATCH_SIZE = 256


@torch.inference_mode()
def embed_activations(
    hasher: Hasher, dataset: Dataset, upper: int, split: Split, progress: Progress
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return embeddings (N, outputs) of the queries and the database, zeros elsewhere, and which images are readable (N,).

    Activations are in half precision, so values near zero may have another sign than those of `embed_split`, which takes
    about six times as long.
    """
    activations = cached_activations(dataset, hasher.backbone, hasher.transform, upper, progress=progress)
    stages = split_stages(hasher.backbone, upper)[1].eval()
    needed = np.union1d(split.query, split.database)
    embeddings = np.zeros((len(dataset), hasher.head.out_features), np.float32)
    for first in range(0, len(needed), BATCH_SIZE):
        batch = needed[first : first + BATCH_SIZE]
        features = stages(to_inputs(activations.crops[0][batch]).to(module_device(hasher.network)))
        embeddings[batch] = hasher.head(features).cpu().numpy()
        progress("encoding activations", (first + len(batch)) / len(needed))
    return embeddings, activations.readable
