"""A training run on disk: its settings, its log, and checkpoints from which it goes on as if nothing had happened."""

import json
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxyhash.support.errors import InputError
from proxyhash.support.files import written_whole
from proxyhash.training.learner import Learner, MovingAverage

CHECKPOINT, BEST, LOG, SETTINGS = "checkpoint.pt", "best.pt", "log.jsonl", "settings.json"


@dataclass
class State:
    """Where a run is: so many epochs and, of the next, so many steps are done."""

    epoch: int = 0
    step: int = 0
    best: float = -1.0


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Only the first of several processes writes."""

    path: Path
    writes: bool = True

    def begin(self, settings: dict[str, Any], *, resume: bool) -> None:
        """Start afresh, or make sure that what is resumed was started with the same settings."""
        kept = self.path / SETTINGS
        if resume and kept.is_file():
            before = json.loads(kept.read_text())
            now = json.loads(json.dumps(settings))
            changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
            if changed:
                old, new = before.get(changed[0]), now.get(changed[0])
                raise InputError(
                    f"{self.path} was started with {changed[0]} = {old}, not {new}; resume needs the same settings."
                )
            return
        if resume:
            raise InputError(f"There is no run to resume in {self.path}.")
        if self.writes:
            for name in (CHECKPOINT, BEST, LOG):
                (self.path / name).unlink(missing_ok=True)
            with written_whole(kept) as temporary:
                temporary.write_text(json.dumps(settings, indent=2))

    def save(self, learner: Learner, optimizer: torch.optim.Optimizer, average: MovingAverage | None, state: State) -> None:
        """Write a checkpoint, whole or not at all."""
        if not self.writes:
            return
        content = {
            "learner": learner.state_dict(),
            "optimizer": optimizer.state_dict(),
            "average": None if average is None else {"learner": average.learner.state_dict(), "steps": average.steps},
            "random": torch.get_rng_state(),  # dropout draws from it
            "state": vars(state),
        }
        self._write(CHECKPOINT, content)

    def restore(self, learner: Learner, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> State:
        """Bring everything back to where the last checkpoint was; without one, stay at the start."""
        if not (self.path / CHECKPOINT).is_file():
            return State()
        content = self._read(CHECKPOINT)
        learner.load_state_dict(content["learner"])
        optimizer.load_state_dict(content["optimizer"])
        if average is not None and content["average"] is not None:
            average.learner.load_state_dict(content["average"]["learner"])
            average.steps = content["average"]["steps"]
        torch.set_rng_state(content["random"])
        return State(**content["state"])

    def keep_best(self, learner: Learner) -> None:
        """Keep these weights as the best so far."""
        if self.writes:
            self._write(BEST, {"learner": learner.state_dict()})

    def load_best(self, learner: Learner) -> None:
        """Load the best weights, if any were kept."""
        if (self.path / BEST).is_file():
            learner.load_state_dict(self._read(BEST)["learner"])

    def log(self, entry: dict[str, Any]) -> None:
        """Append one line of JSON."""
        if self.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / LOG).open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(entry) + "\n")
                handle.flush()
                os.fsync(handle.fileno())

    def _write(self, name: str, content: dict[str, Any]) -> None:
        with written_whole(self.path / name) as temporary:
            torch.save(content, temporary)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = torch.load(self.path / name, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise InputError(f"{self.path / name} is damaged; start again without --resume.") from error
        return content


Weights = dict[str, Tensor]
