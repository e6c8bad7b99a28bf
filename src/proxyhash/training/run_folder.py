"""A training run on disk: its settings, its log, and checkpoints from which it goes on as if nothing had happened."""

import json
import os
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from proxyhash.training.learner import Learner, MovingAverage
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

CHECKPOINT, BEST, LOG, SETTINGS = "checkpoint.pt", "best.pt", "log.jsonl", "settings.json"


@dataclass
class State:
    """Where a run is: so many epochs are done and, of the next, so many steps, whose losses add up to `loss`."""

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    best: float = -1.0  # validation mAP
    seconds: float = 0.0  # spent on all of it, by every process that went on with the run


@dataclass
class Running:
    """All that changes while a run goes on. There is no random state: what is random is a function of epoch and step."""

    learner: Learner
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None = None
    state: State = field(default_factory=State)

    @property
    def judged(self) -> Learner:
        """Return the weights that are validated and used."""
        return self.average.learner if self.average else self.learner


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Only the first of several processes writes."""

    path: Path
    writes: bool = True

    def begin(self, settings: dict[str, Any], *, resume: bool) -> None:
        """Start afresh, or make sure that what is resumed was started with the same settings."""
        if resume:
            self._check_same(dict(_flat(json.loads(json.dumps(settings)))))
        elif self.writes:
            for name in (CHECKPOINT, BEST, LOG):
                (self.path / name).unlink(missing_ok=True)
            with atomic_write(self.path / SETTINGS) as temporary:
                temporary.write_text(json.dumps(settings, indent=2))

    def save(self, running: Running) -> None:
        """Write a checkpoint, whole or not at all."""
        average = running.average
        content = {
            "learner": running.learner.state_dict(),
            "optimizer": running.optimizer.state_dict(),
            "average": None if average is None else {"learner": average.learner.state_dict(), "steps": average.steps},
            "state": vars(running.state),
        }
        self._write(CHECKPOINT, content)

    def restore(self, running: Running) -> None:
        """Bring everything back to where the last checkpoint was; without one, stay at the start."""
        if not (self.path / CHECKPOINT).is_file():
            return
        content = self._read(CHECKPOINT)
        running.learner.load_state_dict(content["learner"])
        running.optimizer.load_state_dict(content["optimizer"])
        if running.average is not None:
            running.average.learner.load_state_dict(content["average"]["learner"])
            running.average.steps = content["average"]["steps"]
        running.state = State(**content["state"])
        self._forget_after(running.state.epoch)

    def seconds(self) -> float:
        """Return what was spent on the run until its last checkpoint."""
        return State(**self._read(CHECKPOINT)["state"]).seconds if (self.path / CHECKPOINT).is_file() else 0.0

    def keep_best(self, learner: Learner) -> None:
        """Keep these weights as the best so far."""
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

    def best_epoch(self, bits: int) -> dict[str, float]:
        """Return which epoch the validation set chose, and what it measured of codes of this length; nothing without one."""
        path = self.path / LOG
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        judged = [entry for entry in map(json.loads, lines) if "map" in entry]
        if not judged:
            return {}
        best = max(judged, key=lambda entry: float(entry["map"]))
        names = ("map", "accuracy", "binarisation_error")
        return {"epoch": best["epoch"]} | {name: best[f"{name}_{bits}"] for name in names if f"{name}_{bits}" in best}

    def _forget_after(self, epoch: int) -> None:
        """Drop log lines of epochs that will be run again, and a line that a kill cut short: each epoch is logged once."""
        if self.writes and (self.path / LOG).is_file():
            lines = (self.path / LOG).read_text(encoding="utf-8").splitlines()
            with atomic_write(self.path / LOG) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines if _epoch(line) <= epoch), encoding="utf-8")

    def _check_same(self, now: dict[str, Any]) -> None:
        kept = self.path / SETTINGS
        if not kept.is_file():
            raise InputError(f"There is no run to resume in {self.path}.")
        try:
            before = dict(_flat(json.loads(kept.read_text())))
        except ValueError as error:
            raise InputError(f"{kept} is damaged; start again without --resume.") from error
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            old, new = before.get(changed[0]), now.get(changed[0])
            name = changed[0].removeprefix("order.").removeprefix("plan.")
            raise InputError(f"{self.path} was started with {name} = {old}, not {new}; resume needs the same settings.")

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if self.writes:
            with atomic_write(self.path / name) as temporary:
                torch.save(content, temporary)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            with zipfile.ZipFile(path) as archive:  # torch's files are archives, whose checksums torch does not look at
                if archive.testzip() is None:
                    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
                    return content
        except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
            raise InputError(f"{path} is damaged; start again without --resume.") from error
        raise InputError(f"{path} is damaged; start again without --resume.")


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield single settings by their path, such as plan.epochs."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _epoch(line: str) -> float:
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
