"""Training and measuring the trials of a grid."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data import Dataset, Split
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.metrics import EncodedSplit, embedding_metrics, retrieval_metrics
from proxyhash.experiments.records import Record, read_record
from proxyhash.experiments.trial import Trial, fingerprint
from proxyhash.methods import TrainingData, get_method
from proxyhash.models.backbones import create_backbone, trained_on
from proxyhash.models.feature_cache import Features, cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.joined import joined
from proxyhash.models.runtime import Floats
from proxyhash.training.checkpoint import CHECKPOINT, CheckpointManager
from proxyhash.training.features import fit_method
from proxyhash.training.measure import PIECE, embed_split
from proxyhash.training.train import TrainConfig, resolve_transform, train_hashers, without
from proxyhash.utils.environment import machine, versions
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress

WORK_FOLDER = ".in-progress"  # beside the records, for checkpoints


@dataclass(frozen=True)
class TrialRunner:
    """Everything that the trials of a grid share."""

    grid: Grid
    dataset: Dataset
    splits: dict[int, Split]
    folder: Path
    models: Path | None
    progress: Progress

    def load_cached(self, trial: Trial) -> list[Record] | None:
        """Return the records of a trial if they are all there and whole."""
        names = [self._record(trial, bits, {}, {}).file_name for bits in trial.code_lengths]
        try:
            return [read_record(self.folder / name) for name in names]
        except InputError:
            return None  # absent, or damaged and made again

    def work_dir(self, trial: Trial) -> Path:
        """Return where the checkpoints of a trial lie."""
        return self.folder / WORK_FOLDER / self._key(trial)

    def run(self, trial: Trial) -> Iterator[Record]:
        """Train and measure."""
        fit = self._train if get_method(trial.method).trains else self._fit
        begun = time.monotonic() - CheckpointManager(self.work_dir(trial)).elapsed_seconds()
        for bits, metrics, fitted in fit(trial):
            seconds = {"fit": round(fitted - begun, 1), "all": round(time.monotonic() - begun, 1)}
            yield self._record(trial, bits, metrics, seconds)

    def _train(self, trial: Trial) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Yield length, metrics and the time when the fit was done, for a network."""
        split, grid, run = self.splits[trial.fold], self.grid, self.work_dir(trial)
        order = TrainConfig(
            trial.code_lengths,
            trial.method,
            trial.settings,
            grid.backbone,
            image_size=grid.image_size,
            optim=trial.optim,
            seed=trial.seed,
        )
        resume = (run / CHECKPOINT).is_file()
        hashers = train_hashers(self.dataset, split, order, run, resume=resume, progress=self.progress)
        fitted = time.monotonic()
        self._save_models(hashers, trial)
        embedded, readable = self._embed(hashers, split)
        usable = without(split, np.flatnonzero(~readable))
        for hasher, nu in zip(hashers, embedded, strict=True):
            head, asked = hasher.head, nu[usable.query]
            codes = head.codes(nu[usable.database])
            if hasher.training_codes is not None and np.array_equal(usable.database, usable.train):
                codes = hasher.training_codes  # learned for just these images
            coded = EncodedSplit(head.queries(asked), head.codes(asked), codes, hasher.bits)
            metrics = retrieval_metrics(coded, self.dataset, usable)
            yield hasher.bits, metrics | embedding_metrics(hasher, nu, self.dataset, usable), fitted

    def _save_models(self, hashers: list[Hasher], trial: Trial) -> None:
        """Save what was trained, if that is wanted."""
        if self.models is not None:
            for hasher in hashers:
                name = self._record(trial, hasher.bits, {}, {}).file_name.removesuffix(".json")
                hasher.record["data"] = {"path": self.grid.dataset, "tags": self.grid.tags, "round": trial.fold}
                hasher.save(self.models / name)

    def _embed(self, hashers: list[Hasher], split: Split) -> tuple[list[Floats], NDArray[np.bool_]]:
        """Return nu of each length, in one pass over the images of the protocol, and which of these could be read."""
        whole = joined(hashers)
        with tempfile.TemporaryDirectory(prefix="proxyhash-") as folder:
            if self.grid.finetune:  # otherwise features are in the cache
                whole.quicken(Path(folder) / "network.onnx")
            nu, readable = embed_split(whole, self.dataset, split, self.progress)
        ends = np.cumsum([hasher.head.outputs for hasher in hashers])
        return np.split(nu, ends[:-1], axis=1), readable

    def _fit(self, trial: Trial) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Yield the same for a method without a network."""
        features = self._features()
        split = without(self.splits[trial.fold], np.flatnonzero(~features.readable))
        dataset, train = self.dataset, split.train
        known = dataset.require_labels().subset(train)
        labels = known.select_classes(known.present_classes())
        for bits in trial.code_lengths:
            data = TrainingData(bits, features.values[train], labels, seed=trial.seed, progress=self.progress)
            encoder = fit_method(trial.method, data, **trial.settings)
            fitted = time.monotonic()
            asked = features.values[split.query]
            parts = np.array_split(split.database, 1 + len(split.database) // PIECE)
            codes = np.concatenate([encoder.encode(features.values[part]) for part in parts])
            coded = EncodedSplit(encoder.encode_queries(asked), encoder.encode(asked), codes, bits)
            yield bits, retrieval_metrics(coded, dataset, split), fitted

    def _features(self) -> Features:
        name = self.grid.backbone
        backbone = create_backbone(name, pretrained=trained_on(name) is not None).eval()
        transform = resolve_transform(self.dataset, backbone, self.grid.image_size)
        return cached_features(self.dataset, backbone, transform, progress=self.progress)

    def _key(self, trial: Trial) -> str:
        split = self.splits[trial.fold]
        protocol = [split.protocol, split.version, split.fingerprint(), self.grid.eval_on]
        return fingerprint({"trial": self._facts(trial), "data": self._data(), "protocol": protocol})

    def _data(self) -> dict[str, Any]:
        facts = {"name": self.dataset.name, "tags": self.grid.tags}
        return facts | {"backbone": self.grid.backbone, "image_size": self.grid.image_size, "finetune": self.grid.finetune}

    def _record(self, trial: Trial, bits: int, metrics: dict[str, Any], seconds: dict[str, float]) -> Record:
        protocol = {**self.splits[trial.fold].record(), "judged_on": self.grid.eval_on}
        facts = self._facts(trial)
        return Record(self._key(trial), self._data(), protocol, facts, bits, metrics, seconds, versions(), machine())

    def _facts(self, trial: Trial) -> dict[str, Any]:
        return trial.as_dict(tags=self.dataset.kind == "tags")
