"""A training run of fractions of a second, for tests; as a script, one that is killed or that shares its work.

python small_training.py FOLDER CONFIG --stop SIGKILL --at STEP    train until the step, then be killed
torchrun ... small_training.py FOLDER CONFIG...                  train each one, and write what every process saw
"""

import argparse
import json
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits as sklearn_digits
from torch import Tensor, nn

from proxyhash.data.images import ArrayImages, Indices
from proxyhash.data.transforms import get_transform
from proxyhash.methods import TrainingData, build_method
from proxyhash.models.backbones import create_backbone
from proxyhash.models.network import HeadConfig, NormalizedBackbone
from proxyhash.training.checkpoint import CheckpointManager, TrainerState
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import FeatureSource, ImageSource, InputSource
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import LossReader, Trainer, TrainSubset
from proxyhash.training.validation import EvalSubset, compute_validation_metrics
from proxyhash.utils.distributed import DistributedContext, init_distributed
from proxyhash.utils.errors import ProxyhashWarning

TRAIN, ALL, BITS = 160, 220, 12
STEPS = 15  # of three epochs
TRANSFORM = replace(get_transform("small", 8), flip=False)  # a mirrored digit is none


@dataclass
class RecordingTrainer(Trainer):
    """A trainer that remembers every step's loss."""

    losses: list[float] = field(default_factory=list)

    def _step(self, state: TrainerState, batch: Indices, inputs: Tensor, losses: LossReader) -> None:
        super()._step(state, batch, inputs, losses)
        self.losses.append(float(losses._pending[-1][0]))


@dataclass
class RecordingSource:
    """A source that remembers which images it gave."""

    source: InputSource
    given: list[list[int]] = field(default_factory=list)

    def chunks(self, indices: Indices, epoch: int) -> list[Indices]:
        return self.source.chunks(indices, epoch)

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        self.given += [batch.tolist() for batch in batches]
        return self.source.train_batches(batches, epoch)

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        return self.source.eval_batches(batches)


def digits() -> tuple[np.ndarray, np.ndarray]:
    content = sklearn_digits()
    gray = np.round(content.images[:ALL] * (255 / 16)).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=3), content.target[:ALL].astype(np.int64)


def small_trainer(
    folder: Path,
    *,
    finetune: bool = False,
    method: str = "hclm",
    settings: dict[str, Any] | None = None,
    processes: DistributedContext | None = None,
    **changes: Any,
) -> RecordingTrainer:
    pixels, labels = digits()
    torch.manual_seed(0)
    data = TrainingData.from_arrays(BITS, flat(pixels[:TRAIN]), labels[:TRAIN])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProxyhashWarning)
        objective = build_method(method, data, settings or {})
    backbone = create_backbone("convnet", pretrained=False)
    optim = OptimConfig(**{"epochs": 3, "batch_size": 32, "lr": 5e-3, "hidden_dim": 24, **changes})
    trunk: nn.Module = NormalizedBackbone(backbone) if finetune else nn.Identity()
    width = backbone.config.num_features if finetune else 64
    head = objective.build_head(HeadConfig(width, BITS, optim.hidden_dim, optim.dropout))
    source: InputSource = (
        ImageSource(ArrayImages(pixels), TRANSFORM, OptimConfig()) if finetune else FeatureSource(flat(pixels))
    )
    validation = EvalSubset(np.arange(TRAIN, ALL), labels[TRAIN:], labels[TRAIN:])
    searched = EvalSubset(np.arange(TRAIN), labels[:TRAIN], labels[:TRAIN])
    processes = processes or DistributedContext()
    return RecordingTrainer(
        MultiHeadModel(trunk, [head], [objective], freeze_bn=optim.freeze_bn),
        optim,
        RecordingSource(source),
        TrainSubset(np.arange(TRAIN), labels[:TRAIN]),
        CheckpointManager(folder, processes.is_main_process),
        lambda model: compute_validation_metrics(model, source, validation, searched, [BITS]),
        processes,
    )


def flat(pixels: np.ndarray) -> np.ndarray:
    return (pixels[..., 0].reshape(len(pixels), 64) / 64).astype(np.float32)


def stopped(folder: Path, config: dict[str, Any], stop: signal.Signals, at: int) -> None:
    trainer = small_trainer(folder, **config)
    steps = 0

    def count(work: str, _: float) -> None:
        nonlocal steps
        steps += work.startswith("training")
        if steps == at:
            os.kill(os.getpid(), stop)

    trainer.progress = count
    trainer.fit()


def shared(folder: Path, configs: list[dict[str, Any]]) -> None:
    processes = init_distributed()
    for number, config in enumerate(configs):
        trainer = small_trainer(folder / str(number), processes=processes, **config)
        weights = trainer.fit().state_dict()
        assert isinstance(trainer.source, RecordingSource)
        seen = {"losses": trainer.losses, "given": trainer.source.given, "weights": weights}
        torch.save(seen, folder / f"{number}-{processes.rank}.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("configs", nargs="+", type=json.loads)
    parser.add_argument("--stop")
    parser.add_argument("--at", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.stop:
        stopped(options.folder, options.configs[0], signal.Signals[options.stop], options.at)
    else:
        shared(options.folder, options.configs)
