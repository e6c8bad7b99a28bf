"""Functions behind the steps of a quickstart."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.codes import binarize, pack
from proxyhash.data import Dataset, SkippedItems, load_dataset
from proxyhash.evaluation.code_recall import code_recall, query_folds
from proxyhash.evaluation.hasher import evaluate_hasher, load_eval_data
from proxyhash.experiments import Grid, read_records, run_grid
from proxyhash.index import Index
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.model_calibration import calibrate_model
from proxyhash.index.refinement.refiner import Kind
from proxyhash.index.upgrade import upgrade
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.storage import fingerprint as model_fingerprint
from proxyhash.quickstart.config import OutputPaths, QuickstartConfig
from proxyhash.quickstart.embedding import CachedEmbedder
from proxyhash.report import compare, write_page
from proxyhash.report.gallery import load_gallery
from proxyhash.training.checkpoint import CHECKPOINT
from proxyhash.training.config import OptimConfig, TrainConfig, settings_for
from proxyhash.training.run import run_folder, train_models
from proxyhash.utils.progress import Progress
from proxyhash.utils.random import permutation

MAX_RECALL_IMAGES = 20_000  # their features take 100 MB
EXAMPLE_MATCHES = 5
REFINEMENT: Kind = "code"  # of a new index


@dataclass
class Pipeline:
    """Training, evaluation, comparison, index and report of one data set.

    Each method takes a progress callback and returns a result for JSON.
    """

    config: QuickstartConfig
    paths: OutputPaths
    title: str

    @cached_property
    def dataset(self) -> Dataset:
        """Load the images."""
        return load_dataset(Path(self.paths.images))

    @property
    def hasher(self) -> Hasher:
        """Load the model."""
        return Hasher.load(self.paths.model, self.config.device)

    def train(self, progress: Progress) -> dict[str, Any]:
        """Train the model, or fit it without labels, and save it."""
        return self._train(progress, resume=False)

    def fit(self, progress: Progress) -> dict[str, Any]:
        """Fit the model without labels, save it, and return which share of the neighbors by features its codes keep."""
        self._train(progress, resume=False)
        return {"neighbor_recall": self._neighbor_recall(progress)}

    def resume_training(self, progress: Progress) -> dict[str, Any]:
        """Continue an interrupted training from its checkpoint, if there is one."""
        return self._train(progress, resume=(run_folder(self.paths.model) / CHECKPOINT).is_file())

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Evaluate the model on the queries of its protocol, and write the metrics to its folder."""
        hasher = self.hasher
        report = evaluate_hasher(hasher, *load_eval_data(hasher), progress=progress)
        report.save(self.paths.model)
        return {"map": report.map, "accuracy": report.accuracy}

    def calibrate(self, progress: Progress) -> dict[str, Any]:
        """Calibrate the model on the validation images of its protocol."""
        embedder = self._embedder(progress)
        calibration = calibrate_model(
            self.paths.model,
            progress=progress,
            embed_batches=None if embedder is None else embedder.embed_batches,
            device=self.config.device,
        )
        return {"pairs": int(calibration.pairs.sum()), "radius": calibration.radius()}

    def compare(self, progress: Progress) -> dict[str, float]:
        """Compare the method with the baselines, and return the mAP of each."""
        return self._compare(self._methods, None, progress)

    def compare_unseen(self, progress: Progress) -> dict[str, float]:
        """Compare on classes that are held out of training, and return the mAP of each method."""
        return self._compare(self._methods, "transfer", progress)

    def compare_for_new_classes(self, progress: Progress) -> dict[str, float]:
        """Evaluate the settings for new classes on classes that are held out of training, and return the mAP."""
        chosen = settings_for("new-classes", self.config.finetune)
        return self._compare((chosen.method,), "transfer", progress, **chosen.optim)

    def index(self, progress: Progress) -> dict[str, Any]:
        """Add the images to the index; an index of an earlier model is upgraded first."""
        self._upgrade_index(progress)

        def count(done: int, total: int) -> None:
            progress("encoding", done / total)

        skipped, embedder = SkippedItems(), self._embedder(progress)
        refine = None if self.paths.index.is_dir() else REFINEMENT  # an index of an earlier release stays as it is
        with Index.open(self.paths.index, model=self.paths.model, device=self.config.device, refine=refine) as index:
            images = Path(self.paths.images)
            added = add_folder(index, images, skipped, prune=True, on_progress=count, embedder=embedder)
            result = {**asdict(added), "items": len(index), "skipped": skipped.as_dict()}
            return {**result, "example": _example_search(index)}

    def report(self, progress: Progress) -> dict[str, Any]:
        """Write the report: tables and figures of the comparison, and retrievals as images."""
        comparisons = compare(read_records(self.paths.results)) if self.config.uses_labels else []
        gallery = load_gallery(self.paths.model, progress=progress)
        write_page(comparisons, self.paths.report, title=self.title, galleries=[gallery])
        return {"report": str(self.paths.report)}

    def _train(self, progress: Progress, *, resume: bool) -> dict[str, Any]:
        config = self.config
        optim = {"epochs": config.epochs, "batch_size": config.batch_size}
        train_config = TrainConfig(
            data=self.paths.images,
            protocol=None if config.uses_labels else "none",
            bits=(config.bits,),
            method=config.method,
            backbone=config.backbone,
            finetune=config.finetune,
            image_size=config.image_size,
            optim=OptimConfig.finetune(**optim) if config.finetune else OptimConfig.frozen(**optim),
            seed=config.seed,
            device=config.device,
        )
        (hasher,) = train_models(train_config, self.paths.model, resume=resume, progress=progress).hashers
        return {"validation": hasher.metadata.get("validation", {})}

    @property
    def _methods(self) -> tuple[str, ...]:
        return (*self.config.baselines, self.config.method)

    def _compare(
        self, methods: tuple[str, ...], protocol: str | None, progress: Progress, **optim: Any
    ) -> dict[str, float]:
        config = self.config
        changes = {**optim, "epochs": config.epochs, "batch_size": config.batch_size}
        grid = Grid(
            dataset=self.paths.images,
            methods=methods,
            bits=(config.bits,),
            protocol=protocol,
            backbone=config.backbone,
            image_size=config.image_size,
            finetune=config.finetune,
            optim={name: value for name, value in changes.items() if value is not None},
        )
        records = run_grid(grid, self.paths.results, device=config.device, progress=progress)
        return {record.trial["label"]: record.metrics["map"] for record in records}

    def _embedder(self, progress: Progress) -> CachedEmbedder | None:
        """Return what embeds from cached features, None for a model whose backbone was trained."""
        if self.config.finetune:
            return None
        hasher = self.hasher
        features = cached_features(self.dataset, hasher.network.features.backbone, hasher.transform, progress=progress)
        return CachedEmbedder(hasher, self.dataset.images, features)

    def _neighbor_recall(self, progress: Progress) -> float | None:
        """Return recall@10 of the exact neighbors by features, among at most `MAX_RECALL_IMAGES` images."""
        hasher = self.hasher
        cached = cached_features(self.dataset, hasher.network.features.backbone, hasher.transform, progress=progress)
        readable = np.flatnonzero(cached.readable)
        if len(readable) < 2:
            return None
        some = np.sort(readable[permutation(len(readable), self.config.seed, "recall")[:MAX_RECALL_IMAGES]])
        features = np.asarray(cached.values[some])
        codes = pack(binarize(hasher.head_forward(features)))
        scores = [
            code_recall(features[queries], features[others], codes[queries], codes[others]).per_query
            for queries, others in query_folds(len(some))
        ]
        return float(np.concatenate(scores).mean())

    def _upgrade_index(self, progress: Progress) -> None:
        if not self.paths.index.is_dir():
            return

        def count(done: int, total: int) -> None:
            progress("encoding", done / total)

        with LocalIndex.open_folder(self.paths.index) as index:
            if index.model != model_fingerprint(self.paths.model):
                upgrade(index, self.hasher, SkippedItems(), drop_unreadable=True, on_progress=count)


def _example_search(index: Index) -> dict[str, Any] | None:
    """Return the first item and the items that are nearest to it; None if there are no others."""
    if len(index) < 2:
        return None
    (item,) = index.list_items(limit=1)
    (found,) = index.search(index.stored_queries([item.key]), EXAMPLE_MATCHES + 1)
    matches = [{"key": match.key, "distance": match.distance} for match in found if match.key != item.key]
    return {"key": item.key, "matches": matches[:EXAMPLE_MATCHES]}
