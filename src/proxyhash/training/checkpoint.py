"""Run folder: settings, log and checkpoints of a training run."""

import json
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from proxyhash.training.model import ModelEma, MultiHeadModel
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.json_lines import append_json_line
from proxyhash.utils.legacy_names import upgrade_checkpoint, upgrade_metric_names, upgrade_run_settings

CHECKPOINT, BEST, LOG, SETTINGS = "checkpoint.pt", "best.pt", "log.jsonl", "settings.json"


@dataclass
class TrainProgress:
    """Number of finished epochs, and the steps of the next epoch that are done."""

    epoch: int = 0
    step: int = 0
    loss: float = 0.0  # Sum over the steps of the epoch.
    best: float = -1.0  # Highest validation mAP.
    seconds: float = 0.0  # Training time, including that before a resume.


@dataclass
class TrainerState:
    """Everything that changes during a run. It holds no random state: draws are functions of seed, epoch and step."""

    model: MultiHeadModel
    optimizer: torch.optim.Optimizer
    ema: ModelEma | None = None
    progress: TrainProgress = field(default_factory=TrainProgress)

    @property
    def eval_model(self) -> MultiHeadModel:
        """Return the model that is validated and used: the moving average if there is one."""
        return self.model if self.ema is None else self.ema.module


@dataclass(frozen=True)
class CheckpointManager:
    """Folder of one run. `can_write` is true in the main process only."""

    path: Path
    can_write: bool = True

    def start(self, settings: dict[str, Any], *, resume: bool) -> None:
        """Delete an earlier run and write the settings; with `resume`, check that the settings are those of the run."""
        if resume:
            self._check_settings(dict(_flatten(json.loads(json.dumps(settings)))))
        elif self.can_write:
            for name in (SETTINGS, CHECKPOINT, BEST, LOG):  # the settings first: without them, there is no run to resume
                (self.path / name).unlink(missing_ok=True)
            with atomic_write(self.path / SETTINGS) as temporary:
                temporary.write_text(json.dumps(settings, indent=2))

    def save(self, state: TrainerState) -> None:
        """Write a checkpoint atomically."""
        content = {
            "model": state.model.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "ema": None if state.ema is None else state.ema.state_dict(),
            "progress": vars(state.progress),
        }
        self._write(CHECKPOINT, content)

    def restore(self, state: TrainerState) -> None:
        """Load the last checkpoint into `state`; without one, leave it as it is. The log keeps the epochs until then."""
        if not (self.path / CHECKPOINT).is_file():
            self._drop_log_after(state.progress.epoch)
            return
        content = self._read(CHECKPOINT)
        state.model.load_state_dict(content["model"])
        state.optimizer.load_state_dict(content["optimizer"])
        if state.ema is not None:
            state.ema.load_state_dict(content["ema"])
        state.progress = TrainProgress(**content["progress"])
        self._drop_log_after(state.progress.epoch)

    def elapsed_seconds(self) -> float:
        """Return the training time until the last checkpoint."""
        return float(self._read(CHECKPOINT)["progress"]["seconds"]) if (self.path / CHECKPOINT).is_file() else 0.0

    def save_best(self, model: MultiHeadModel) -> None:
        """Write the weights of the best epoch so far."""
        self._write(BEST, {"model": model.state_dict()})

    def load_best(self, model: MultiHeadModel) -> None:
        """Load the weights of the best epoch, if there are any."""
        if (self.path / BEST).is_file():
            model.load_state_dict(self._read(BEST)["model"])

    def log_epoch(self, entry: dict[str, Any]) -> None:
        """Append a line of JSON to the log, synced to disk."""
        if self.can_write:
            append_json_line(self.path / LOG, entry)

    def best_epoch_metrics(self, bits: int) -> dict[str, float]:
        """Return the best epoch and its validation metrics for a code length; empty without a validation set."""
        path = self.path / LOG
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        entries = [upgrade_metric_names(json.loads(line)) for line in lines]
        validated = [entry for entry in entries if "map" in entry]
        if not validated:
            return {}
        best = max(validated, key=lambda entry: float(entry["map"]))
        names = ("map", "accuracy", "binarization_error")
        return {"epoch": best["epoch"]} | {name: best[f"{name}_{bits}"] for name in names if f"{name}_{bits}" in best}

    def _drop_log_after(self, epoch: int) -> None:
        """Remove log lines of epochs that will be repeated, and an incomplete last line."""
        if self.can_write and (self.path / LOG).is_file():
            lines = (self.path / LOG).read_text(encoding="utf-8").splitlines()
            with atomic_write(self.path / LOG) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines if _epoch_of(line) <= epoch), encoding="utf-8")

    def _check_settings(self, now: dict[str, Any]) -> None:
        path = self.path / SETTINGS
        if not path.is_file():
            raise InputError(f"There is no run to resume in {self.path}.")
        try:
            before = dict(_flatten(upgrade_run_settings(json.loads(path.read_text()))))
        except ValueError as error:
            raise InputError(f"{path} is damaged; start again without --resume.") from error
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            old, new = before.get(changed[0]), now.get(changed[0])
            name = changed[0].removeprefix("config.").removeprefix("optim.")
            raise InputError(f"{self.path} was started with {name} = {old}, not {new}; resume needs the same settings.")

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if self.can_write:
            with atomic_write(self.path / name) as temporary:
                torch.save(content, temporary)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            with zipfile.ZipFile(path) as archive:  # torch.load does not check the checksums of the archive.
                if archive.testzip() is None:
                    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
                    return upgrade_checkpoint(content)
        except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
            raise InputError(f"{path} is damaged; start again without --resume.") from error
        raise InputError(f"{path} is damaged; start again without --resume.")


def _flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with dotted names, such as optim.epochs."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _epoch_of(line: str) -> float:
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
