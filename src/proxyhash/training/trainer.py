"""The training loop, from top to bottom."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.images import Indices
from proxyhash.training.batches import class_balanced_batches, shuffled_batches
from proxyhash.training.embedding import embed
from proxyhash.training.interruption import Interruption
from proxyhash.training.learner import Learner, MovingAverage, optimizer_for, set_rates
from proxyhash.training.plan import Plan
from proxyhash.training.processes import Processes
from proxyhash.training.run_folder import RunFolder, Running, State
from proxyhash.training.sources import Source
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Metrics = dict[str, float]


class TrainingStoppedError(InputError):
    """Training could not go on; the message says why and what is left."""


@dataclass(frozen=True)
class Material:
    """The images that are learned from: `images` (n,) into the source, with `targets` (n,) of classes or (n, T) of tags."""

    images: Indices
    targets: NDArray[np.int64] | NDArray[np.float32]


@dataclass
class Trainer:
    """Trains a learner by a plan. `validate` judges the weights after an epoch; a higher "map" is better."""

    learner: Learner
    plan: Plan
    source: Source
    material: Material
    run: RunFolder
    validate: Callable[[Learner], Metrics] | None = None
    processes: Processes = field(default_factory=Processes)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: Progress = no_progress
    report: Callable[[Metrics], None] = lambda _: None  # is told of every epoch

    def fit(self) -> Learner:
        """Train to the end of the plan, from the last checkpoint if there is one; return the weights to use."""
        learner, plan = self.learner.to(self.device), self.plan
        running = Running(learner, optimizer_for(learner, plan), MovingAverage(learner, plan.ema) if plan.ema else None)
        self.run.restore(running)
        self.run.save(running)  # whatever stops the run, there is something to go on from
        try:
            with Interruption() as interruption:
                while running.state.epoch < plan.epochs:
                    self._epoch(running, interruption)
        except UnreadableImageError as error:
            raise TrainingStoppedError(f"{error} Put it back and go on with --resume; {self._left()}") from error
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            raise TrainingStoppedError(
                f"Memory ran out with batches of {plan.batch}: free some and go on with --resume, "
                f"or start again with a smaller --batch; {self._left()}"
            ) from error
        self.processes.barrier()
        if self.validate is not None:
            self.run.load_best(running.judged)
        return running.judged.eval()

    def _epoch(self, running: Running, interruption: Interruption) -> None:
        """Take the steps of an epoch that are still to be taken, and judge what came of them."""
        learner, state = running.learner.train(), running.state
        batches = self._batches(state.epoch)
        todo = batches[state.step :]
        inputs = self.source.training([self.material.images[self._share(batch)] for batch in todo], state.epoch)
        begun = saved = time.monotonic()
        before, seen = state.seconds, 0
        for batch, ours in zip(todo, inputs, strict=True):
            done = (state.epoch + state.step / len(batches)) / self.plan.epochs
            set_rates(running.optimizer, self.plan.rate_factor(done))
            self._seed(state)
            state.loss += self._step(learner, running.optimizer, batch, ours)
            if running.average is not None:
                running.average.update(learner)
            state.step, seen = state.step + 1, seen + len(batch)
            state.seconds = before + time.monotonic() - begun
            self.progress(_status(state, seen / (time.monotonic() - begun)), done)
            if interruption.asked or time.monotonic() - saved > self.plan.checkpoint_seconds:
                self.run.save(running)
                saved = time.monotonic()
            interruption.check(self._left())
        self._judge(running, {"loss": state.loss / len(batches), "images_per_second": seen / (time.monotonic() - begun)})
        state.epoch, state.step, state.loss = state.epoch + 1, 0, 0.0
        state.seconds = before + time.monotonic() - begun
        self.run.save(running)
        interruption.check(self._left())

    def _step(self, learner: Learner, optimizer: torch.optim.Optimizer, batch: Indices, inputs: Tensor) -> float:
        """Take one step: embed our share, see everyone's, step down the loss of the whole batch."""
        inputs = inputs.to(self.device)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            ours = learner(inputs)
        nus = [self.processes.gather(nu.float(), len(batch)) for nu in ours]
        targets = torch.from_numpy(self.material.targets[batch]).to(self.device)
        loss = learner.loss(nus, targets, torch.from_numpy(batch).to(self.device))
        value = self._finite("loss", loss)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.processes.add_gradients([*learner.trunk.parameters(), *learner.heads.parameters()])
        self.processes.average_gradients(learner.objectives.parameters())
        self._finite("gradient", torch.nn.utils.clip_grad_norm_(learner.parameters(), self.plan.clip or math.inf))
        optimizer.step()
        return value

    def _finite(self, what: str, number: Tensor) -> float:
        """Return a number; stop before the step that would spoil the weights."""
        value = number.item()
        if not math.isfinite(value):
            raise TrainingStoppedError(f"The {what} became {value}: start again with a lower learning rate; {self._left()}")
        return value

    def _seed(self, state: State) -> None:
        """Let what a step draws (dropout) depend on where it is, not on what was drawn before: resuming needs no memory."""
        stream = generator(self.plan.seed, "steps", state.epoch, state.step, self.processes.rank)
        torch.manual_seed(int(stream.integers(2**62)))

    def _batches(self, epoch: int) -> Sequence[Indices]:
        """Return the batches of an epoch: the same ones whenever and wherever it is run."""
        random = generator(self.plan.seed, "batches", epoch)
        per_class = max(objective.per_class for objective in self.learner.methods)
        if not per_class:
            return shuffled_batches(len(self.material.images), self.plan.batch, random)
        groups = -(-np.bincount(self.material.targets.astype(np.int64)) // per_class)  # of each class
        together = max(1, min(self.plan.batch // per_class, int(groups.sum())))
        return class_balanced_batches(self.material.targets, together * per_class, per_class, random)

    def _share(self, batch: Indices) -> Indices:
        return batch[self.processes.share(len(batch))]

    def _judge(self, running: Running, metrics: Metrics) -> None:
        """Do what is done between epochs, validate, keep the weights if they are the best so far, and log."""
        begun, state = time.monotonic(), running.state
        self._seed(state)
        for number, (objective, head) in enumerate(zip(running.learner.methods, running.learner.coders, strict=True)):
            objective.on_epoch_end(partial(self._embed_training, running.learner, number), head)
        if running.average is not None:
            running.average.copy_buffers(running.learner)
        metrics = {"epoch": state.epoch + 1, **metrics}
        if self.validate is not None:
            metrics |= self.validate(running.judged)
            if metrics["map"] > state.best:
                state.best = metrics["map"]
                self.run.keep_best(running.judged)
        self.run.log({**metrics, "validation_seconds": round(time.monotonic() - begun, 2)})
        self.report(metrics)

    def _embed_training(self, learner: Learner, number: int) -> Tensor:
        return torch.from_numpy(embed(learner, self.source, self.material.images)[number])

    def _left(self) -> str:
        return f"the last checkpoint is in {self.run.path}."


def _status(state: State, rate: float) -> str:
    best = f", best mAP {state.best:.3f}" if state.best >= 0 else ""
    return f"training: loss {state.loss / state.step:.3f}{best}, {rate:,.0f} images/s"


def _out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; on a CPU torch says so in words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
