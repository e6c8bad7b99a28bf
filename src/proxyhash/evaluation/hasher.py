"""Evaluation of a hasher on the queries and the database of a split."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.data import Dataset, Split, load_dataset, make_split
from proxyhash.data.images import Indices, Subset
from proxyhash.data.protocols.split import drop_indices
from proxyhash.evaluation.classification import classify_codes
from proxyhash.evaluation.distributed import evaluate_distributed
from proxyhash.evaluation.embeddings import binarization_errors, nearest_proxy_accuracy
from proxyhash.evaluation.metrics import DEFAULT_KS, precision_recall_curve
from proxyhash.evaluation.results import Metric, PrecisionRecallCurve
from proxyhash.labels import ClassLabels
from proxyhash.models.backbones.wrapped import MissingBackbone
from proxyhash.models.card import refresh_card
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.heads import Queries
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.runtime import BATCH_SIZE
from proxyhash.models.storage import METRICS
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.distributed import DistributedContext
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, dump_json
from proxyhash.utils.progress import Progress, no_progress

FORMAT = "proxyhash.metrics/2"
CHUNK_SIZE = 4096  # features copied from the cache at a time


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """Codes of the queries and the database of a split, made by any encoder.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> q, db = pack([[1, -1]]), pack([[1, 1], [1, -1]])
    >>> EncodedSplit(q, q, db, bits=2).is_hamming
    True
    """

    queries: Queries
    """Packed codes (Q, bytes), or tables (Q, M, k), see `codes.adc`, that are compared with the database."""
    query_codes: Packed
    """Packed codes (Q, bytes)."""
    database_codes: Packed
    """Packed codes (N, bytes)."""
    bits: int
    hasher: Hasher | None = None
    """The hasher that made the codes, if one did."""
    query_embeddings: Floats | None = None
    """Its embeddings of the queries (Q, outputs)."""

    @property
    def is_hamming(self) -> bool:
        """Return whether codes are compared by Hamming distance."""
        return self.queries.dtype == np.uint8

    @property
    def subcode_bits(self) -> int:
        """Number of bits of a subcode, 1 for codes that are compared bit by bit."""
        return 1 if self.is_hamming else int(self.queries.shape[2]).bit_length() - 1


@dataclass(frozen=True, eq=False)
class EvalReport:
    """Metrics of a hasher on a split, see `evaluate_hasher`. The first metric is the mAP of the protocol."""

    metrics: list[Metric]
    split: Split
    """The split without the images that could not be read."""
    accuracy: float | None = None
    """Accuracy by nearest proxy, if the queries have classes with a proxy."""
    binarization_errors: Floats | None = None
    """(|nu_k| - 1)^2 of the queries (Q, bits), if the code is sgn(nu) and nu is from -1 to 1."""
    precision_recall: PrecisionRecallCurve | None = None
    """Only with `detailed`, and for Hamming distances."""
    classification: Metric | None = None
    """Softmax regression on codes; only with `detailed`, if training saw no class of the database."""

    @property
    def map(self) -> float:
        """Mean average precision by the protocol."""
        return self.metrics[0].value

    @property
    def binarization_error(self) -> float | None:
        """Mean binarization error of the queries."""
        return None if self.binarization_errors is None else float(self.binarization_errors.mean())

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON, with mAP as `map`."""
        return {
            "map": self.map,
            "accuracy": self.accuracy,
            "binarization_error": self.binarization_error,
            "metrics": [metric.as_dict() for metric in self.metrics],
            "protocol": self.split.as_dict(),
        }

    def save(self, folder: Path) -> None:
        """Write metrics.json to the folder of the model; the model card shows it."""
        content = {"format": FORMAT, REQUIRES: RELEASE, **self.as_dict()}
        with refresh_card(folder), atomic_write(folder / METRICS) as temporary:
            temporary.write_text(dump_json(content), encoding="utf-8")


def evaluate_hasher(
    hasher: Hasher | EncodedSplit,
    dataset: Dataset,
    split: Split,
    *,
    ks: tuple[int, ...] = DEFAULT_KS,
    detailed: bool = False,
    context: DistributedContext | None = None,
    progress: Progress = no_progress,
) -> EvalReport:
    """Search the database of a split with its queries, and score the results.

    Parameters
    ----------
    hasher
        A hasher, or codes that any encoder made of the split.
    dataset
        Images and labels.
    split
        Queries and database, as indices into the data set.
    ks
        Numbers of neighbors for precision@k and recall@k.
    detailed
        Also compute the precision-recall curve and, if training saw no class of the database, classify its codes.
    context
        Processes that share images and queries; every one of them gets the same report.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    EvalReport
        All metrics; images that could not be read are left out.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> from proxyhash.data import load_dataset, make_split
    >>> digits = load_dataset("digits")
    >>> split = make_split(digits, validation="none")
    >>> signs = np.random.default_rng(0).choice([-1, 1], (len(digits), 16))
    >>> q, db = pack(signs[split.query]), pack(signs[split.database])
    >>> report = evaluate_hasher(EncodedSplit(q, q, db, bits=16), digits, split)
    >>> 0 < report.map < 0.2  # random codes of ten classes
    True
    """
    if isinstance(hasher, Hasher):
        embeddings, readable = embed_split(hasher, dataset, split, progress, context)
        split = drop_indices(split, np.flatnonzero(~readable))
        hasher = encode_split(hasher, embeddings, split)
    labels = dataset.require_labels()
    query_labels, database_labels = labels.values[split.query], labels.values[split.database]
    retrieval = (hasher.queries, query_labels, hasher.database_codes, database_labels)
    metrics = evaluate_distributed(
        *retrieval, split.top, ks, denominator=split.denominator, context=context, progress=progress
    )
    curve = classification = None
    if detailed and hasher.is_hamming:
        curve = precision_recall_curve(*retrieval)
    if detailed and not labels.is_multi_label and not np.isin(database_labels, split.classes).any():
        classification = classify_codes(
            hasher.query_codes,
            query_labels,
            hasher.database_codes,
            database_labels,
            hasher.bits,
            subcode_bits=hasher.subcode_bits,
        )
    accuracy, errors = _score_embeddings(hasher, dataset, split)
    return EvalReport(metrics, split, accuracy, errors, curve, classification)


def encode_split(hasher: Hasher, embeddings: Floats, split: Split) -> EncodedSplit:
    """Return the codes of a split from the embeddings (N, outputs) of the whole data set."""
    head, query_embeddings = hasher.head, embeddings[split.query]
    if hasher.training_codes is not None and np.array_equal(split.database, split.train):
        database_codes = hasher.training_codes  # learned for these images
    else:
        database_codes = head.encode(embeddings[split.database])
    queries, query_codes = head.encode_queries(query_embeddings), head.encode(query_embeddings)
    return EncodedSplit(queries, query_codes, database_codes, hasher.bits, hasher, query_embeddings)


def _score_embeddings(encoded: EncodedSplit, dataset: Dataset, split: Split) -> tuple[float | None, Floats | None]:
    """Return the accuracy by nearest proxy and the binarization errors of the queries, where they are defined."""
    hasher, embeddings = encoded.hasher, encoded.query_embeddings
    if hasher is None or embeddings is None:
        return None, None
    errors = binarization_errors(embeddings) if hasher.head.is_bounded else None
    if hasher.proxies is None or not isinstance(dataset.labels, ClassLabels):
        return None, errors
    number = {name: position for position, name in enumerate(hasher.class_names)}
    classes = np.array([number.get(name, -1) for name in dataset.class_names])[dataset.labels.values[split.query]]
    return nearest_proxy_accuracy(hasher.nearest_proxies(embeddings), classes), errors


def embed_split(
    hasher: Hasher, dataset: Dataset, split: Split, progress: Progress, context: DistributedContext | None = None
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return embeddings (N, outputs) of the queries and the database, zeros elsewhere, and which images are readable (N,).

    A hasher with a frozen backbone uses the feature cache. Several processes share the images batch by batch, so that each
    batch, and its rounding, is the same as in one process.
    """
    context = context or DistributedContext()
    needed = np.union1d(split.query, split.database)
    embeddings = np.zeros((len(dataset), hasher.head.out_features), np.float32)
    readable = np.ones(len(dataset), bool)
    backbone, transform = hasher.backbone, hasher.transform
    if not hasher.metadata.get("config", {}).get("finetune", True) and not isinstance(backbone, MissingBackbone):
        features = context.main_process_first(lambda: cached_features(dataset, backbone, transform, progress=progress))
        for chunk in np.array_split(needed, 1 + len(needed) // CHUNK_SIZE):
            embeddings[chunk] = hasher.head_forward(features.values[chunk])
        return embeddings, features.readable
    batches = _batches(needed)
    shard = np.concatenate([needed[:0], *batches[context.shard(len(batches))]])
    kept, rows = hasher.embed(Subset(dataset.images, shard), on_error="skip", skipped=dataset.skipped, progress=progress)
    embeddings[shard[kept]] = rows
    readable[np.setdiff1d(shard, shard[kept])] = False
    return context.all_reduce_sum(embeddings), context.all_reduce_sum((~readable).astype(np.uint8)) == 0


def _batches(indices: Indices) -> list[Indices]:
    return [indices[first : first + BATCH_SIZE] for first in range(0, len(indices), BATCH_SIZE)]


def load_eval_data(
    hasher: Hasher,
    data: str | Dataset | None = None,
    protocol: str | None = None,
    fold: int | None = None,
    *,
    top: int | None = None,
    denominator: str | None = None,
    data_dir: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[Dataset, Split]:
    """Load the data set and the split that a hasher was trained with, or others.

    Parameters
    ----------
    hasher
        A trained hasher; its history names the data set and the protocol.
    data
        Another data set, by name or folder; or a data set, split as in training if it has the name of the one trained on.
    protocol
        Another protocol.
    fold
        Another fold of a transfer protocol; None for that of the training, if the protocol is the same.
    top, denominator
        Cutoff and denominator of mAP; None for those of the protocol.
    data_dir
        Folder to look for a named data set first.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    tuple of Dataset and Split
        Arguments of `evaluate_hasher`.

    Raises
    ------
    InputError
        If the history does not name a data set, or the hasher was fitted without labels and `data` is None.
    """
    name, history, trained = hasher.folder or "The model", hasher.metadata.get("protocol"), hasher.metadata.get("data")
    if trained is None and not isinstance(data, Dataset):
        raise InputError(f"{name} does not say what it was trained on; encode images with it and use evaluate codes.")
    trained = trained or {"path": None, "tags": None, "fold": 0}
    if history is None and data is None:
        raise InputError(f"{name} was fitted without labels, so relevance is unknown; name a labeled data set with --data.")
    if trained["path"] is None and data is None:
        raise InputError(f"{name} was trained on a data set without a name or folder; pass the data set again.")
    dataset = load_dataset(trained["path"] if data is None else data, data_dir=data_dir, progress=progress)
    history = history or {"dataset": None, "protocol": None, "seed": 0}
    is_same = data is None or (isinstance(data, Dataset) and dataset.name == history.get("dataset"))
    dataset = dataset.with_frequent_tags(trained["tags"]) if trained["tags"] else dataset
    protocol = protocol or (history["protocol"] if is_same else None)
    if fold is None:
        fold = trained["fold"] if protocol == history["protocol"] else 0
    seed = history["seed"]
    split = make_split(dataset, protocol, seed=seed, fold=fold, validation="none", top=top, denominator=denominator)
    return dataset, split
