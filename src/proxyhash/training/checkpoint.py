"""Run folder: settings, log and checkpoints of a training run."""

import json
import math
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from proxyhash.training.model import InitialWeights, ModelEma, MultiHeadModel
from proxyhash.utils.atomic_io import atomic_write, checksum
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json
from proxyhash.utils.json_lines import append_json_line, parse_json_line, split_json_lines
from proxyhash.utils.legacy_names import upgrade_checkpoint, upgrade_metric_names, upgrade_run_settings

CHECKPOINT, BEST, LOG, SETTINGS = "checkpoint.pt", "best.pt", "log.jsonl", "settings.json"
FORMAT = "proxyhash.run/2"  # of all files of the folder; those of release 0.1 do not name theirs
ADVICE = "start again without --resume"
_BROKEN = (  # errors of torch and zipfile at files that are damaged
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    NotImplementedError,
)


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
    scaler: torch.amp.GradScaler | None = None  # of float16
    initial: InitialWeights | None = None  # that are averaged with the trained ones

    def averaged_model(self) -> MultiHeadModel:
        """Return the model that is validated and used: the moving average and the average with initial weights, if any."""
        model = self.model if self.ema is None else self.ema.module
        return model if self.initial is None else self.initial.averaged(model)


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
                temporary.write_text(dump_json({"format": FORMAT, REQUIRES: RELEASE, **settings}), encoding="utf-8")

    def save(self, state: TrainerState) -> None:
        """Write a checkpoint atomically."""
        content = {
            "model": state.model.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "ema": None if state.ema is None else state.ema.state_dict(),
            "progress": vars(state.progress),
        }
        if state.scaler is not None:
            content["scaler"] = state.scaler.state_dict()
        self._write(CHECKPOINT, content)

    def restore(self, state: TrainerState) -> None:
        """Load the last checkpoint into `state`; without one, leave it as it is. The log keeps the epochs until then."""
        if not (self.path / CHECKPOINT).is_file():
            self._drop_log_after(state.progress.epoch)
            return
        content = self._read(CHECKPOINT)
        with _damaged(self.path / CHECKPOINT):
            state.model.load_state_dict(content["model"])
            state.optimizer.load_state_dict(content["optimizer"])
            if state.ema is not None:
                state.ema.load_state_dict(content["ema"])
            if state.scaler is not None:
                state.scaler.load_state_dict(content["scaler"])
            state.progress = TrainProgress(**content["progress"])
        self._drop_log_after(state.progress.epoch)

    def elapsed_seconds(self) -> float:
        """Return the training time until the last checkpoint."""
        if not (self.path / CHECKPOINT).is_file():
            return 0.0
        content = self._read(CHECKPOINT)
        with _damaged(self.path / CHECKPOINT):
            return float(content["progress"]["seconds"])

    def save_best(self, model: MultiHeadModel) -> None:
        """Write the weights of the best epoch so far."""
        self._write(BEST, {"model": model.state_dict()})

    def load_best(self, model: MultiHeadModel) -> None:
        """Load the weights of the best epoch, if there are any."""
        if (self.path / BEST).is_file():
            content = self._read(BEST)
            with _damaged(self.path / BEST):
                model.load_state_dict(content["model"])

    def log_epoch(self, entry: dict[str, Any]) -> None:
        """Append a line of JSON to the log, synced to disk."""
        if self.can_write:
            append_json_line(self.path / LOG, entry)

    def best_epoch_metrics(self, bits: int) -> dict[str, float]:
        """Return the best epoch and its validation metrics for a code length; empty without a validation set."""
        entries = [upgrade_metric_names(entry) for _, entry in self._log()]
        validated = [entry for entry in entries if "map" in entry]
        if not validated:
            return {}
        best = max(validated, key=lambda entry: float(entry["map"]))
        names = ("map", "accuracy", "binarization_error")
        return {"epoch": best["epoch"]} | {name: best[f"{name}_{bits}"] for name in names if f"{name}_{bits}" in best}

    def _log(self, repeated_after: float = math.inf) -> list[tuple[bytes, dict[str, Any]]]:
        """Return the lines of the log and their content; an incomplete last line of a killed run is left out.

        A loss of power can also tear a line inside. Such a last line is left out too, if its epoch will be repeated.
        """
        path = self.path / LOG
        lines = split_json_lines(path.read_bytes()) if path.is_file() else []
        entries = []
        for number, line in enumerate(lines, 1):
            try:
                entry = parse_json_line(line)
                float(entry["epoch"])
                entries.append((line, entry))
            except (ValueError, KeyError, TypeError) as error:
                if number == len(lines) and repeated_after <= (entries[-1][1]["epoch"] if entries else 0):
                    break
                raise InputError(f"Line {number} of {path} is damaged: {error}; {ADVICE}.") from error
        return entries

    def _drop_log_after(self, epoch: int) -> None:
        """Remove log lines of epochs that will be repeated, and a torn last line."""
        if self.can_write and (self.path / LOG).is_file():
            kept = [line + b"\n" for line, entry in self._log(epoch) if entry["epoch"] <= epoch]
            with atomic_write(self.path / LOG) as temporary:
                temporary.write_bytes(b"".join(kept))

    def _check_settings(self, now: dict[str, Any]) -> None:
        path = self.path / SETTINGS
        if not path.is_file():
            raise InputError(f"There is no run to resume in {self.path}.")
        before = read_settings(path)
        changed = sorted(key for key in before.keys() | now.keys() if not _is_same(before.get(key), now.get(key)))
        if changed:
            old, new = before.get(changed[0]), now.get(changed[0])
            name = changed[0].removeprefix("config.").removeprefix("optim.")
            raise InputError(f"{self.path} was started with {name} = {old}, not {new}; resume needs the same settings.")

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if self.can_write:
            own = {"format": FORMAT, REQUIRES: RELEASE, "settings_sha256": self._settings_sha256()}
            with atomic_write(self.path / name) as temporary:
                torch.save({**own, **content}, temporary)

    def _read(self, name: str) -> dict[str, Any]:
        """Return the content of a file of this run, after a check of its checksums, which torch.load does not do."""
        path = self.path / name
        with _damaged(path):
            with zipfile.ZipFile(path) as archive:
                is_intact = archive.testzip() is None
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True) if is_intact else {}
            if not isinstance(content, dict) or not content:
                raise ValueError("its checksum differs")
            content = upgrade_checkpoint(content)
        if "format" in content:
            check_format(path, content["format"], (FORMAT,), content.get(REQUIRES))
            if content.get("settings_sha256") != self._settings_sha256():
                raise InputError(f"{path} belongs to a run with other settings than {self.path / SETTINGS}; {ADVICE}.")
        return content

    def _settings_sha256(self) -> str | None:
        path = self.path / SETTINGS
        return checksum(path, "sha256") if path.is_file() else None


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a run with dotted names, such as optim.epochs; other content is an `InputError`."""
    try:
        content = dict(read_json(path))
        check_format(path, content.pop("format", FORMAT), (FORMAT,), content.pop(REQUIRES, None))
        return dict(_flatten(upgrade_run_settings(content)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).rstrip(".") if isinstance(error, InputError) else f"{path} is damaged"
        raise InputError(f"{reason}; {ADVICE}.") from error


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """Turn errors of wrong content into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{path} is damaged; {ADVICE}.") from error


def _is_same(before: object, now: object) -> bool:
    """Return whether two settings are equal; in Python, True equals one upper stage to train."""
    return before == now and isinstance(before, bool) == isinstance(now, bool)


def _flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with dotted names, such as optim.epochs."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
