"""A trained hasher measured by a protocol: codes of queries and database, and every metric on them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data import Dataset, Split, load_dataset, make_split
from proxyhash.data.images import Indices, Subset
from proxyhash.evaluation import Metric
from proxyhash.labels import ClassLabels
from proxyhash.models.card import refresh_card
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.runtime import BATCH_SIZE, Floats
from proxyhash.models.storage import METRICS
from proxyhash.training.processes import Processes
from proxyhash.training.shared_evaluation import evaluate_shared
from proxyhash.training.train import without
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

FORMAT = "proxyhash.measured/1"
PIECE = 4096  # features that are copied from the cache at a time


@dataclass(frozen=True)
class Measured:
    """The metrics of a hasher; the first is mAP. `accuracy` is by nearest proxy, where queries have classes it knows."""

    metrics: list[Metric]
    accuracy: float | None
    binarisation_error: float | None  # of a code that is the signs of nu
    split: Split

    def keep(self, folder: Path) -> None:
        """Store the numbers with the model that they are of; its card shows them."""
        content = {"format": FORMAT, **self.as_dict()}
        with refresh_card(folder), atomic_write(folder / METRICS) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON; `map` is the protocol's mAP."""
        return {
            "map": self.metrics[0].value,
            "accuracy": self.accuracy,
            "binarisation_error": self.binarisation_error,
            "metrics": [metric.as_dict() for metric in self.metrics],
            "protocol": self.split.as_dict(),
        }


def what_it_was_trained_for(
    hasher: Hasher,
    data: str | None = None,
    protocol: str | None = None,
    round: int | None = None,
    *,
    data_dir: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[Dataset, Split]:
    """Return the data and the split that a trained hasher is measured by, or others if they are given."""
    whose, history, trained = hasher.folder or "The model", hasher.metadata.get("protocol"), hasher.metadata.get("data")
    if trained is None:
        raise InputError(f"{whose} does not say what it was trained on; encode images with it and use evaluate codes.")
    if history is None and data is None:
        raise InputError(f"{whose} was fitted without labels, so nothing says which images are alike; name labeled --data.")
    dataset = load_dataset(data or trained["path"], data_dir=data_dir, progress=progress)
    dataset = dataset.with_frequent_tags(trained["tags"]) if trained["tags"] else dataset
    history = history or {"protocol": None, "seed": 0}
    name = protocol or (history["protocol"] if data is None else None)
    number = trained["round"] if round is None else round
    return dataset, make_split(dataset, name, seed=history["seed"], fold=number, validation="none")


def measure_hasher(
    hasher: Hasher,
    dataset: Dataset,
    split: Split,
    *,
    processes: Processes | None = None,
    progress: Progress = no_progress,
) -> Measured:
    """Encode queries and database and evaluate; features that were frozen are taken from the cache."""
    processes = processes or Processes()
    nu, readable = embed_split(hasher, dataset, split, progress, processes)
    split = without(split, np.flatnonzero(~readable))
    metrics = evaluate_shared(
        hasher.head.encode_queries(nu[split.query]),
        dataset.require_labels().values[split.query],
        hasher.head.encode(nu[split.database]),
        dataset.require_labels().values[split.database],
        top=split.top,
        processes=processes,
        progress=progress,
    )
    error = float(((np.abs(nu[split.query]) - 1) ** 2).mean()) if hasher.head.metric == "hamming" else None
    return Measured(metrics, proxy_accuracy(hasher, dataset, split.query, nu), error, split)


def embed_split(
    hasher: Hasher, dataset: Dataset, split: Split, progress: Progress, processes: Processes | None = None
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return nu (N, bits) of the images of the protocol, zeros elsewhere, and which could be read (N,).

    Several processes share the images batch by batch: each batch is what it would be in one process, and so are its sums.
    """
    processes = processes or Processes()
    wanted = np.union1d(split.query, split.database)
    nu = np.zeros((len(dataset), hasher.head.out_features), np.float32)
    readable = np.ones(len(dataset), bool)
    if not hasher.metadata.get("order", {}).get("plan", {}).get("backbone_rate", 1):
        backbone, transform = hasher.network.features.backbone, hasher.transform
        features = processes.in_turn(lambda: cached_features(dataset, backbone, transform, progress=progress))
        for part in np.array_split(wanted, 1 + len(wanted) // PIECE):
            nu[part] = hasher.head_forward(features.values[part])
        return nu, features.readable
    mine = np.concatenate([wanted[:0], *_batches(wanted)[processes.share(len(_batches(wanted)))]])
    kept, rows = hasher.embed(Subset(dataset.images, mine), on_error="skip", skipped=dataset.skipped, progress=progress)
    nu[mine[kept]] = rows
    readable[np.setdiff1d(mine, mine[kept])] = False
    return processes.combined(nu), processes.combined((~readable).astype(np.uint8)) == 0


def _batches(wanted: Indices) -> list[Indices]:
    return [wanted[first : first + BATCH_SIZE] for first in range(0, len(wanted), BATCH_SIZE)]


def proxy_accuracy(hasher: Hasher, dataset: Dataset, queries: Indices, nu: Floats) -> float | None:
    """Return how often the nearest proxy is that of a query's class, for nu (N, bits), if that can be asked."""
    if hasher.proxies is None or not isinstance(dataset.labels, ClassLabels):
        return None
    number = {name: position for position, name in enumerate(hasher.class_names)}
    truth = np.array([number.get(name, -1) for name in dataset.class_names])[dataset.labels.values[queries]]
    known = truth >= 0
    if not known.any():
        return None
    return float((hasher.nearest_proxies(nu[queries])[known] == truth[known]).mean())
