"""Training and evaluation of the trials of a grid."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data import Dataset, Split
from proxyhash.data.protocols.split import drop_indices
from proxyhash.evaluation.activations import embed_activations
from proxyhash.evaluation.hasher import CHUNK_SIZE, EncodedSplit, embed_split, encode_split
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.metrics import record_metrics
from proxyhash.experiments.records import Record, RecordStore, settings_key
from proxyhash.experiments.trial import Trial
from proxyhash.experiments.tuned_for import tuned_for
from proxyhash.methods import TrainingData, get_method
from proxyhash.models.backbones import create_backbone, pretraining_data
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher, concat_hashers
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.row_cache import CachedRows
from proxyhash.training.checkpoint import CHECKPOINT, SETTINGS, CheckpointManager
from proxyhash.training.config import Finetune, TrainConfig, is_partial, resolve_stages
from proxyhash.training.features import fit_method
from proxyhash.training.inputs import resolve_transform
from proxyhash.training.train import train_hashers
from proxyhash.utils.environment import provenance
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import read_json
from proxyhash.utils.legacy_names import LEGACY_WORK_FOLDER, upgrade_run_settings
from proxyhash.utils.progress import Progress

WORK_FOLDER = ".in-progress"  # holds checkpoints, in the folder of the records


@dataclass(frozen=True)
class TrialRunner:
    """Runs the trials of one grid, and keeps their records and checkpoints in one folder."""

    grid: Grid
    dataset: Dataset
    splits: dict[int, Split]
    folder: Path
    models: Path | None
    progress: Progress
    rerun_stale: bool = False
    device: str = "cpu"

    @cached_property
    def store(self) -> RecordStore:
        """The records of the folder."""
        return RecordStore(self.folder)

    def load_cached(self, trial: Trial) -> list[Record] | None:
        """Return the records of a trial, or None if one is missing, or stale and to be computed again."""
        key = self._key(trial)
        found = [record for bits in trial.code_lengths if (record := self.store.find(key, bits))]
        is_stale = self.rerun_stale and any(record.stale_reason for record in found)
        return None if is_stale or len(found) < len(trial.code_lengths) else found

    def purpose(self) -> dict[str, Any]:
        """Return what settings of this grid are tuned for."""
        return tuned_for(self._data(), next(iter(self.splits.values())).as_dict())

    def work_dir(self, trial: Trial) -> Path:
        """Return the folder of the checkpoints of a trial."""
        return self.folder / WORK_FOLDER / self._key(trial)

    def run(self, trial: Trial) -> Iterator[Record]:
        """Train a trial, evaluate it, and yield a record per code length."""
        fit = self._train if get_method(trial.method).trains else self._fit
        self._adopt_legacy_run(trial)
        begun = time.monotonic() - CheckpointManager(self.work_dir(trial)).elapsed_seconds()
        for bits, metrics, fitted in fit(trial):
            seconds = {"fit": round(fitted - begun, 1), "all": round(time.monotonic() - begun, 1)}
            yield self._record(trial, bits, metrics, seconds)

    def _train(self, trial: Trial) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Train a network; yield code length, metrics and the time at which training ended."""
        split, run = self.splits[trial.fold], self.work_dir(trial)
        resume = (run / CHECKPOINT).is_file()
        config = self._train_config(trial)
        hashers = train_hashers(self.dataset, split, config, run, resume=resume, progress=self.progress)
        fitted = time.monotonic()
        self._save_models(hashers, trial)
        embedded, readable = self._embed(hashers, split)
        usable = drop_indices(split, np.flatnonzero(~readable))
        for hasher, embeddings in zip(hashers, embedded, strict=True):
            encoded = encode_split(hasher, embeddings, usable)
            yield hasher.bits, record_metrics(encoded, self.dataset, usable), fitted

    def _train_config(self, trial: Trial) -> TrainConfig:
        grid = self.grid
        return TrainConfig(
            data=grid.dataset,
            tags=grid.tags,
            fold=trial.fold,
            bits=trial.code_lengths,
            method=trial.method,
            settings=trial.settings,
            backbone=grid.backbone,
            pretrained=grid.pretrained,
            finetune=grid.finetune,
            image_size=grid.image_size,
            optim=trial.optim,
            seed=trial.seed,
            device=self.device,
        )

    def _adopt_legacy_run(self, trial: Trial) -> None:
        """Move the run folder that release 0.1 left of this trial, if there is one, to the trial's folder."""
        if not get_method(trial.method).trains or self.work_dir(trial).exists():
            return
        config = json.loads(json.dumps(self._train_config(trial).weight_settings()))
        for path in (self.folder / LEGACY_WORK_FOLDER).glob(f"*/{SETTINGS}"):
            try:
                found = upgrade_run_settings(read_json(path))
                same_split = found["protocol"]["fingerprint"] == self._protocols[trial.fold]["fingerprint"]
            except (InputError, KeyError, TypeError):  # damaged: the trial starts again
                continue
            if same_split and found["config"] == config:
                self.work_dir(trial).parent.mkdir(exist_ok=True)
                path.parent.replace(self.work_dir(trial))
                with suppress(OSError):  # runs of other trials are still there
                    path.parent.parent.rmdir()
                return

    def _save_models(self, hashers: list[Hasher], trial: Trial) -> None:
        """Save the trained models if a folder for them is given."""
        if self.models is not None:
            for hasher in hashers:
                name = self._record(trial, hasher.bits, {}, {}).name
                hasher.save(self.models / name)

    def _embed(self, hashers: list[Hasher], split: Split) -> tuple[list[Floats], NDArray[np.bool_]]:
        """Return the embeddings (N, outputs) of each code length, computed in one pass, and which images could be read.

        Validation of partial fine-tuning uses the cached activations, whose rounding changes few bits.
        """
        whole = concat_hashers(hashers)
        if self.device != "cpu":
            whole.network.to(self.device)
        if is_partial(self._finetune) and self.grid.eval_on == "validation":
            embeddings, readable = embed_activations(whole, self.dataset, int(self._finetune), split, self.progress)
        else:
            with tempfile.TemporaryDirectory(prefix="proxyhash-") as folder:
                if self.device == "cpu" and self._finetune is not False:  # otherwise features are in the cache
                    whole.use_onnx(Path(folder) / "network.onnx")
                embeddings, readable = embed_split(whole, self.dataset, split, self.progress)
        ends = np.cumsum([hasher.head.out_features for hasher in hashers])
        return np.split(embeddings, ends[:-1], axis=1), readable

    def _fit(self, trial: Trial) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Fit a method without a network to features; yield the same."""
        features = self._features()
        split = drop_indices(self.splits[trial.fold], np.flatnonzero(~features.readable))
        dataset, train = self.dataset, split.train
        known = dataset.require_labels().subset(train)
        labels = known.select_classes(known.present_classes())
        for bits in trial.code_lengths:
            data = TrainingData(bits, features.values[train], labels, seed=trial.seed, progress=self.progress)
            encoder = fit_method(trial.method, data, **trial.settings)
            fitted = time.monotonic()
            queries = features.values[split.query]
            parts = np.array_split(split.database, 1 + len(split.database) // CHUNK_SIZE)
            codes = np.concatenate([encoder.encode(features.values[part]) for part in parts])
            encoded = EncodedSplit(encoder.encode_queries(queries), encoder.encode(queries), codes, bits)
            yield bits, record_metrics(encoded, dataset, split), fitted

    def _features(self) -> CachedRows:
        name = self.grid.backbone
        pretrained = self.grid.pretrained and pretraining_data(name) is not None
        backbone = create_backbone(name, pretrained=pretrained).eval().to(self.device)
        transform = resolve_transform(self.dataset, backbone, self.grid.image_size)
        return cached_features(self.dataset, backbone, transform, progress=self.progress)

    @cached_property
    def _finetune(self) -> Finetune:
        """What is trained of the backbone, with the number of stages that "last" stands for."""
        if self.grid.finetune != "last":
            return self.grid.finetune
        return resolve_stages("last", create_backbone(self.grid.backbone, pretrained=False))

    def _key(self, trial: Trial) -> str:
        return settings_key(self._data(), self._protocols[trial.fold], self._trial(trial))

    def _data(self) -> dict[str, Any]:
        names = ("tags", "backbone", "image_size")
        data = {"name": self.dataset.name} | {name: getattr(self.grid, name) for name in names}
        data["finetune"] = self._finetune
        # The default is not recorded, so that records of earlier grids are found.
        return data if self.grid.pretrained else {**data, "pretrained": False}

    @cached_property
    def _protocols(self) -> dict[int, dict[str, Any]]:
        """Protocol of each fold; cached, because the fingerprint of a split takes time."""
        return {fold: {**split.as_dict(), "eval_on": self.grid.eval_on} for fold, split in self.splits.items()}

    def _trial(self, trial: Trial) -> dict[str, Any]:
        return trial.as_dict(tags=self.dataset.kind == "tags")

    def _record(self, trial: Trial, bits: int, metrics: dict[str, Any], seconds: dict[str, float]) -> Record:
        settings = self._data(), self._protocols[trial.fold], self._trial(trial)
        made = provenance()
        if self.device != "cpu":
            made["machine"]["device"] = self.device
        revision, edges = get_method(trial.method).revision, self.grid.edges(trial.label)
        return Record(*settings, bits, metrics, seconds, **made, revision=revision, at_edge=edges)
