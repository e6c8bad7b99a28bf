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

from proxyhash.data.images import Indices
from proxyhash.support.errors import InputError
from proxyhash.support.progress import Progress, silent
from proxyhash.support.seeds import generator
from proxyhash.training.batches import class_balanced_batches, shuffled_batches
from proxyhash.training.embedding import embed
from proxyhash.training.learner import Learner, MovingAverage, optimizer_for, set_rates
from proxyhash.training.plan import Plan
from proxyhash.training.processes import Processes
from proxyhash.training.run_folder import RunFolder, State
from proxyhash.training.sources import Source

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
    progress: Progress = silent
    report: Callable[[Metrics], None] = lambda _: None  # is told of every epoch

    def fit(self) -> Learner:
        """Train to the end of the plan, from the last checkpoint if there is one; return the weights to use."""
        learner, plan = self.learner.to(self.device), self.plan
        optimizer = optimizer_for(learner, plan)
        average = MovingAverage(learner, plan.ema) if plan.ema else None
        torch.manual_seed(int(generator(plan.seed, "dropout", self.processes.rank).integers(2**62)))
        state = self.run.restore(learner, optimizer, average)
        try:
            while state.epoch < plan.epochs:
                self._epoch(learner, optimizer, average, state)
        except KeyboardInterrupt:
            self.run.save(learner, optimizer, average, state)
            raise
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise TrainingStoppedError(
                f"Memory ran out with batches of {plan.batch}: use smaller ones. {self._left()}"
            ) from error
        final = average.learner if average else learner
        if self.validate is not None:
            self.processes.barrier()
            self.run.load_best(final)
        return final.eval()

    def _epoch(
        self, learner: Learner, optimizer: torch.optim.Optimizer, average: MovingAverage | None, state: State
    ) -> None:
        """Take the steps of an epoch that are still to be taken, and judge what came of them."""
        batches = self._batches(state.epoch)
        todo = batches[state.step :]
        inputs = self.source.training([self.material.images[self._share(batch)] for batch in todo], state.epoch)
        loss, begun, saved = 0.0, time.monotonic(), time.monotonic()
        learner.train()
        for batch, ours in zip(todo, inputs, strict=True):
            done = (state.epoch + state.step / len(batches)) / self.plan.epochs
            self.progress("training", done)
            set_rates(optimizer, self.plan.rate_factor(done))
            loss += self._step(learner, optimizer, batch, ours) / len(todo)
            if average is not None:
                average.update(learner)
            state.step += 1
            if time.monotonic() - saved > self.plan.checkpoint_seconds:
                self.run.save(learner, optimizer, average, state)
                saved = time.monotonic()
        state.epoch, state.step = state.epoch + 1, 0
        rate = sum(map(len, todo)) / (time.monotonic() - begun)
        for number, objective in enumerate(learner.methods):
            objective.after_epoch(partial(self._embed_training, learner, number))
        self._judge(
            average.learner if average else learner, state, {"epoch": state.epoch, "loss": loss, "images_per_second": rate}
        )
        self.run.save(learner, optimizer, average, state)
        self.progress("training", state.epoch / self.plan.epochs)

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
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingStoppedError(f"The loss became {value}: lower the learning rate. {self._left()}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.processes.add_gradients([*learner.trunk.parameters(), *learner.heads.parameters()])
        self.processes.average_gradients(learner.objectives.parameters())
        if self.plan.clip:
            torch.nn.utils.clip_grad_norm_(learner.parameters(), self.plan.clip)
        optimizer.step()
        return value

    def _batches(self, epoch: int) -> Sequence[Indices]:
        """Return the batches of an epoch: the same ones whenever and wherever it is run."""
        random = generator(self.plan.seed, "batches", epoch)
        per_class = max(objective.per_class for objective in self.learner.methods)
        if not per_class:
            return shuffled_batches(len(self.material.images), self.plan.batch, random)
        size = self.plan.batch // per_class * per_class
        return class_balanced_batches(self.material.targets, size, per_class, random)

    def _share(self, batch: Indices) -> Indices:
        return batch[self.processes.share(len(batch))]

    def _judge(self, learner: Learner, state: State, metrics: Metrics) -> None:
        """Validate, keep the weights if they are the best so far, and log."""
        begun = time.monotonic()
        if self.validate is not None:
            metrics |= self.validate(learner)
            if metrics["map"] > state.best:
                state.best = metrics["map"]
                self.run.keep_best(learner)
        self.run.log({**metrics, "validation_seconds": round(time.monotonic() - begun, 2)})
        self.report(metrics)

    def _embed_training(self, learner: Learner, number: int) -> Tensor:
        return torch.from_numpy(embed(learner, self.source, self.material.images)[number])

    def _left(self) -> str:
        return f"The last checkpoint is in {self.run.path}; --resume continues from it."
