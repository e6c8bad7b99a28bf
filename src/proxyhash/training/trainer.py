"""Training loop."""

import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.images import Indices
from proxyhash.models.precision import Precision, autocast, move_batch, training_precision
from proxyhash.training.checkpoint import CheckpointManager, TrainerState, TrainProgress
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import InputSource
from proxyhash.training.model import InitialWeights, ModelEma, MultiHeadModel, build_optimizer, set_lr
from proxyhash.training.samplers import class_balanced_batches, shuffled_batches
from proxyhash.training.validation import embed_subset
from proxyhash.utils.distributed import DistributedContext
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

STEPS_PER_READ = 20  # of the loss from a GPU, which waits until the GPU has done all steps before

Metrics = dict[str, float]


class TrainingStoppedError(InputError):
    """Training had to stop; the message gives the reason and the folder of the last checkpoint."""


@dataclass(frozen=True)
class TrainSubset:
    """Training images: `indices` (n,) into the source, and `targets`, classes (n,) or tags (n, T)."""

    indices: Indices
    targets: NDArray[np.int64] | NDArray[np.float32]


class InterruptHandler:
    """Context in which the first Ctrl-C only sets `is_requested`, so that a step is finished; a second one acts as usual."""

    def __init__(self) -> None:
        self.is_requested = False
        self._previous_handler = signal.getsignal(signal.SIGINT)
        self._is_main_thread = threading.current_thread() is threading.main_thread()  # Others cannot catch signals.

    def __enter__(self) -> Self:
        """Install the handler."""
        if self._is_main_thread:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handler."""
        if self._is_main_thread:
            signal.signal(signal.SIGINT, self._previous_handler)

    def raise_if_requested(self, message: str) -> None:
        """Raise a `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.is_requested:
            raise KeyboardInterrupt(message)

    def _handle(self, _: int, __: FrameType | None) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, self._previous_handler)


class LossReader:
    """Losses and gradient norms of steps, read from their device in groups of `steps`: each read waits for the device.

    Parameters
    ----------
    steps
        Steps between two reads.
    on_invalid
        Called with the name and the value of a number that is not finite; it raises an exception.
    """

    def __init__(self, steps: int, on_invalid: Callable[[str, float], None]) -> None:
        self._steps, self._on_invalid = steps, on_invalid
        self._pending: list[Tensor] = []  # of each step, the loss and perhaps the norm

    def __len__(self) -> int:
        """Return the number of steps that were not read yet."""
        return len(self._pending)

    def push(self, loss: Tensor, norm: Tensor | None) -> None:
        """Take the numbers of a step; with groups of one step they are checked at once, before the weights change."""
        self._pending.append(torch.stack([loss.detach()] if norm is None else [loss.detach(), norm]))
        if self._steps == 1:
            self._check(self._pending)

    def read(self, progress: TrainProgress, *, all_steps: bool) -> None:
        """Add the losses of the steps since the last read, if their group is complete or all steps are wanted."""
        if len(self._pending) >= (1 if all_steps else self._steps):
            for loss in self._check(self._pending):
                progress.loss += loss
            self._pending.clear()

    def _check(self, steps: list[Tensor]) -> list[float]:
        """Return the losses of steps, read in one copy."""
        rows = torch.stack(steps).tolist()
        for row in rows:
            for name, value in zip(("loss", "gradient"), row, strict=False):
                if not math.isfinite(value):
                    self._on_invalid(name, value)
        return [row[0] for row in rows]


@dataclass
class Trainer:
    """Training of a model, with a checkpoint after every epoch and every `checkpoint_seconds`.

    `validate` returns metrics of the weights after an epoch; the epoch with the highest "map" is used. `report` is called
    with the metrics of every epoch. The loss is read from a GPU every `STEPS_PER_READ` steps, and before each checkpoint.
    """

    model: MultiHeadModel
    optim: OptimConfig
    source: InputSource
    train_subset: TrainSubset
    checkpoints: CheckpointManager
    validate: Callable[[MultiHeadModel], Metrics] | None = None
    distributed: DistributedContext = field(default_factory=DistributedContext)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: Progress = no_progress
    report: Callable[[Metrics], None] = lambda _: None
    seed: int = 0
    precision: Precision | None = None

    @property
    def used_precision(self) -> Precision:
        """Return the precision of the forward pass."""
        return training_precision(self.device, self.precision)

    def fit(self) -> MultiHeadModel:
        """Train for all epochs, from the last checkpoint if there is one; return the model with the weights to use."""
        model, optim = self.model.to(self.device), self.optim
        initial = InitialWeights.of(model.trunk, optim.pretrained_share) if optim.pretrained_share else None
        ema = ModelEma(model, optim.ema_decay) if optim.ema_decay else None
        scaler = torch.amp.GradScaler(self.device.type) if self.used_precision == "float16" else None
        state = TrainerState(model, build_optimizer(model, optim), ema, scaler=scaler, initial=initial)
        self.checkpoints.restore(state)
        self.checkpoints.save(state)  # Whatever stops the run, it can be resumed.
        try:
            with InterruptHandler() as interrupt:
                while state.progress.epoch < optim.epochs:
                    self._train_epoch(state, interrupt)
        except UnreadableImageError as error:
            raise TrainingStoppedError(f"{error} Put it back and go on with --resume; {self._checkpoint_note()}") from error
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            raise TrainingStoppedError(
                f"Memory ran out with batches of {optim.batch_size}: free some and go on with --resume, "
                f"or start again with a smaller --batch-size; {self._checkpoint_note()}"
            ) from error
        self.distributed.barrier()
        final = state.averaged_model()
        if self.validate is not None:
            self.checkpoints.load_best(final)
        return final.eval()

    def _train_epoch(self, state: TrainerState, interrupt: InterruptHandler) -> None:
        """Take the remaining steps of an epoch, validate and write a checkpoint."""
        progress, losses = state.progress, LossReader(self._steps_per_read(), self._stop)
        state.model.train()
        batches = self._batches(progress.epoch)
        remaining = batches[progress.step :]
        shards = [self.train_subset.indices[self._shard(batch)] for batch in remaining]
        inputs = self.source.train_batches(shards, progress.epoch)
        start = saved = time.monotonic()
        seconds_before, seen = progress.seconds, 0
        for batch, shard_inputs in zip(remaining, inputs, strict=True):
            done = (progress.epoch + progress.step / len(batches)) / self.optim.epochs
            set_lr(state.optimizer, self.optim.lr_factor(done))
            self._seed_step(progress)
            self._step(state, batch, shard_inputs, losses)
            if state.ema is not None:
                state.ema.update_parameters(state.model)
            progress.step, seen = progress.step + 1, seen + len(batch)
            losses.read(progress, all_steps=progress.step == len(batches))
            progress.seconds = seconds_before + time.monotonic() - start
            self.progress(_format_status(progress, len(losses), seen / (time.monotonic() - start)), done)
            if interrupt.is_requested or time.monotonic() - saved > self.optim.checkpoint_seconds:
                losses.read(progress, all_steps=True)
                self.checkpoints.save(state)
                saved = time.monotonic()
            interrupt.raise_if_requested(self._checkpoint_note())
        speed = seen / (time.monotonic() - start)
        self._end_epoch(state, {"loss": progress.loss / len(batches), "images_per_second": speed})
        progress.epoch, progress.step, progress.loss = progress.epoch + 1, 0, 0.0
        progress.seconds = seconds_before + time.monotonic() - start
        self.checkpoints.save(state)
        interrupt.raise_if_requested(self._checkpoint_note())

    def _step(self, state: TrainerState, batch: Indices, inputs: Tensor, losses: LossReader) -> None:
        """Embed this process's shard of a batch, gather all embeddings, and take a step by the loss of the whole batch."""
        model, optimizer, scaler = state.model, state.optimizer, state.scaler
        inputs = move_batch(inputs, self.device)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with autocast(self.device, self.used_precision):
            shard_embeddings = model(inputs)
            shard_observed = model.momentum_embeddings(inputs)
        embeddings = [self.distributed.all_gather(nu.float(), len(batch)) for nu in shard_embeddings]
        observed = [self.distributed.all_gather(nu.float(), len(batch)) for nu in shard_observed]
        labels = self.train_subset.targets[batch], batch
        targets, indices = (move_batch(torch.from_numpy(values), self.device) for values in labels)
        for objective, nu in zip(model.objectives, observed, strict=False):  # there may be no momentum encoder
            objective.observe(nu, indices)
        loss = model.loss(embeddings, targets, indices)
        optimizer.zero_grad(set_to_none=True)
        (loss if scaler is None else scaler.scale(loss)).backward()
        self.distributed.sum_gradients([*model.trunk.parameters(), *model.heads.parameters()])
        self.distributed.average_gradients(model.objectives.parameters())
        if scaler is not None:
            scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.optim.grad_clip or math.inf)
        losses.push(loss, norm if scaler is None else None)  # a scaler leaves out steps whose gradient is not finite
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def _steps_per_read(self) -> int:
        return 1 if self.device.type == "cpu" else STEPS_PER_READ

    def _stop(self, what: str, value: float) -> None:
        message = f"The {what} became {value}: start again with a lower learning rate; {self._checkpoint_note()}"
        raise TrainingStoppedError(message)

    def _seed_step(self, progress: TrainProgress) -> None:
        """Seed torch by epoch and step, so that dropout does not depend on earlier draws and resuming is exact."""
        stream = generator(self.seed, "steps", progress.epoch, progress.step, self.distributed.rank)
        torch.manual_seed(int(stream.integers(2**62)))

    def _batches(self, epoch: int) -> Sequence[Indices]:
        """Return the batches of an epoch, a function of the seed and the epoch."""
        random = generator(self.seed, "batches", epoch)
        chunks = self.source.chunks(self.train_subset.indices, epoch)
        return [chunk[batch] for chunk in chunks for batch in self._batches_of(self.train_subset.targets[chunk], random)]

    def _batches_of(self, targets: NDArray[Any], random: np.random.Generator) -> Sequence[Indices]:
        """Return batches of images with these targets."""
        samples_per_class = max(objective.samples_per_class for objective in self.model.objectives)
        if not samples_per_class:
            return shuffled_batches(len(targets), self.optim.batch_size, random)
        groups = -(-np.bincount(targets.astype(np.int64)) // samples_per_class)  # Of each class.
        groups_per_batch = max(1, min(self.optim.batch_size // samples_per_class, int(groups.sum())))
        batch_size = groups_per_batch * samples_per_class
        return class_balanced_batches(targets, batch_size, samples_per_class, random)

    def _shard(self, batch: Indices) -> Indices:
        return batch[self.distributed.shard(len(batch))]

    def _end_epoch(self, state: TrainerState, metrics: Metrics) -> None:
        """Call the objectives' hooks, validate, save the best weights and log."""
        start, progress = time.monotonic(), state.progress
        self._seed_step(progress)
        for number, (objective, head) in enumerate(zip(state.model.objectives, state.model.heads, strict=True)):
            objective.on_epoch_end(partial(self._embed_train_subset, state.model, number), head)
        if state.ema is not None:
            state.ema.copy_buffers(state.model)
        metrics = {"epoch": progress.epoch + 1, **metrics}
        if self.validate is not None:
            averaged = state.averaged_model()
            metrics |= self.validate(averaged)
            if metrics["map"] > progress.best:
                progress.best = metrics["map"]
                self.checkpoints.save_best(averaged)
        self.checkpoints.log_epoch({**metrics, "validation_seconds": round(time.monotonic() - start, 2)})
        self.report(metrics)

    def _embed_train_subset(self, model: MultiHeadModel, number: int) -> Tensor:
        return torch.from_numpy(embed_subset(model, self.source, self.train_subset.indices)[number])

    def _checkpoint_note(self) -> str:
        return f"the last checkpoint is in {self.checkpoints.path}."


def _format_status(progress: TrainProgress, unread: int, speed: float) -> str:
    best = f", best mAP {progress.best:.3f}" if progress.best >= 0 else ""
    loss = f"loss {progress.loss / (progress.step - unread):.3f}" if progress.step > unread else "first steps"
    return f"training: {loss}{best}, {speed:,.0f} images/s"


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; on a CPU only the text of torch's error says so."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
