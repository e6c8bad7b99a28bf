"""Speed of partial fine-tuning on cached activations, against a bare loop on activations in memory.

python benchmarks/partial.py                everything, about ten minutes on two cores and 100 MB of disk
python benchmarks/partial.py --only chunks  some of: epoch, chunks
python benchmarks/partial.py --short        epochs of four steps

Both sides train the upper stages of EfficientNet-Lite0 and heads of 16, 32 and 64 bits, with the loss of sHCLM around random
proxies. The bare loop takes batches from an array, flips and converts them, and takes steps. It has no cache on disk, no
checkpoints, no clipping of gradients and no schedule. Each side runs alone in a process, in alternation.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from proxyhash.data import ArrayImages, Dataset
from proxyhash.data.transforms import get_transform
from proxyhash.methods import TrainingData, build_method
from proxyhash.models.activation_cache import CachedActivations, cached_activations, to_inputs
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.network import HashHead, HeadConfig
from proxyhash.training.activations import CHUNK_BYTES, ActivationSource
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import OptimConfig
from proxyhash.training.model import MultiHeadModel, build_optimizer
from proxyhash.training.trainer import Trainer, TrainSubset
from proxyhash.utils.memory import keep_freed_memory
from reporting import Row, alone, options_of, run, timed

BACKBONE, UPPER, SIZE = "efficientnet_lite0", 5, 224
BITS, CLASSES = (16, 32, 64), 100
OPTIM = OptimConfig.partial(epochs=1)
STEPS, SHORT_STEPS, TURNS = 30, 4, 3
CHUNKS = 4


@dataclass(frozen=True)
class Job:
    """What both sides train."""

    model: MultiHeadModel
    activations: CachedActivations
    targets: NDArray[np.int64]


def prepare(folder: Path, images: int) -> Job:
    """Return the model and the activations, which are in the folder from the second call on, after one pass."""
    keep_freed_memory()  # as `train_hashers` does
    torch.manual_seed(0)
    pixels = np.random.default_rng(0).integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
    backbone, transform = create_backbone(BACKBONE).eval(), get_transform("small", SIZE)
    cached = cached_activations(Dataset("synthetic", ArrayImages(pixels)), backbone, transform, UPPER, folder=folder)
    backbone.set_bn_momentum(OPTIM.bn_momentum)
    targets = np.arange(images) % CLASSES
    objectives = [build_method("random", TrainingData.from_arrays(bits, None, targets), {}) for bits in BITS]
    heads = [HashHead(HeadConfig(backbone.config.num_features, bits)) for bits in BITS]
    model = MultiHeadModel(split_stages(backbone, UPPER)[1], heads, objectives)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first = np.arange(OPTIM.batch_size)
    model.train().loss(model(to_inputs(cached.crops[0][first])), *_labels(targets, first)).backward()  # warm up
    model.zero_grad()
    return Job(model, cached, targets)


def _labels(targets: NDArray[np.int64], batch: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(targets[batch]), torch.from_numpy(batch)


def train(folder: Path, images: int, chunks: int) -> float:
    """Return the seconds of a run of one epoch by the trainer, whose source reads the cache in so many chunks."""
    job = prepare(folder, images)
    rows = job.activations.crops[0]
    chunk_bytes = CHUNK_BYTES if chunks == 1 else rows.nbytes // chunks
    source = ActivationSource(job.activations.crops, flip=True, chunk_bytes=chunk_bytes, block_bytes=chunk_bytes // 8)
    subset = TrainSubset(np.arange(images), job.targets)
    with tempfile.TemporaryDirectory() as run_dir:
        return timed(Trainer(job.model, OPTIM, source, subset, CheckpointManager(Path(run_dir))).fit)[1]


def train_bare(folder: Path, images: int) -> float:
    """Return the seconds of an epoch of a bare loop."""
    job = prepare(folder, images)
    values, optimizer = np.array(job.activations.crops[0]), build_optimizer(job.model, OPTIM)
    return timed(_loop, job.model, optimizer, values, job.targets)[1]


def _loop(
    model: MultiHeadModel,
    optimizer: torch.optim.Optimizer,
    values: NDArray[np.float16],
    targets: NDArray[np.int64],
) -> None:
    random = np.random.default_rng(0)
    for batch in random.permutation(len(values)).reshape(-1, OPTIM.batch_size):
        inputs, is_mirrored = values[batch], random.random(len(batch)) < 0.5
        inputs[is_mirrored] = inputs[is_mirrored, :, ::-1]
        loss = model.loss(model(to_inputs(inputs)), *_labels(targets, batch))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def epoch_rows(steps: int, chunks: int) -> Iterator[Row]:
    images = steps * OPTIM.batch_size
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone(fill, folder, images)
        ours, bare = [], []
        for _ in range(TURNS):
            bare.append(alone(train_bare, folder, images))
            ours.append(alone(train, folder, images, chunks))
    share, where = min(bare) / min(ours), "" if chunks == 1 else f", read in {chunks} chunks"
    note = f"{images / min(ours):.0f} and {images / min(bare):.0f} images/s; {steps} steps, two checkpoints"
    name = f"{BACKBONE}, upper {UPPER} stages{where}: speed of the trainer over that of a bare loop"
    yield Row(name, share, ">= 0.85", share >= 0.85, min(ours), note=note)


def fill(folder: Path, images: int) -> None:
    """Write the activations."""
    prepare(folder, images)


def main() -> None:
    options = options_of(__doc__, ["epoch", "chunks"], short="epochs of four steps")
    steps = SHORT_STEPS if options.short else STEPS
    sections = {"epoch": partial(epoch_rows, steps, 1), "chunks": partial(epoch_rows, steps, CHUNKS)}
    run("Partial fine-tuning against a bare loop", sections, options)


if __name__ == "__main__":
    main()
