"""Calibration of a trained model: its validation images against the rest of its training set."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.data import Dataset, SkippedItems, load_dataset, make_split
from proxyhash.data.images import Indices
from proxyhash.data.vectors import read_vectors
from proxyhash.index.calibration import Calibration, calibrate
from proxyhash.index.model_store import load_encoder
from proxyhash.index.vector_sync import is_vector_model
from proxyhash.models.card import refresh_card
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import permutation

if TYPE_CHECKING:
    from proxyhash.models.encoder import EmbedBatches
    from proxyhash.models.vector_hasher import VectorHasher

MAX_QUERIES, MAX_ITEMS = 2_000, 20_000  # images that are encoded, which gives enough pairs at each distance


def calibrate_model(
    model: Path,
    data: str | None = None,
    protocol: str | None = None,
    data_dir: Path | None = None,
    progress: Progress = no_progress,
    *,
    embed_batches: "EmbedBatches | None" = None,
    device: str = "cpu",
) -> Calibration:
    """Calibrate the model in a folder on its protocol's validation set, store the calibration there, and return it.

    A model that takes vectors is calibrated on a file of labeled vectors, half of them as queries.

    `embed_batches` replaces that of the model; it must give embeddings with the same signs.
    """
    if is_vector_model(model):
        return _calibrate_vectors(model, data, device, progress)
    encoder = load_encoder(model, device)
    if encoder.folder != model:
        raise InputError(f"{model} is the copy of a shared model; save it to a folder of your own and calibrate that.")
    history, trained_on = encoder.metadata.get("protocol", {}), encoder.metadata.get("data", {})
    if data is None and trained_on.get("path") is None:
        raise InputError(f"{model} does not say what it was trained with; name the data with --data.")
    dataset = load_dataset(data or trained_on["path"], data_dir=data_dir, progress=progress)
    if data is None and trained_on.get("tags"):
        dataset = dataset.with_frequent_tags(trained_on["tags"])
    name = protocol or (history.get("protocol") if data is None else None)
    split = make_split(dataset, name, seed=history.get("seed", 0), fold=trained_on.get("fold", 0))
    if not len(split.validation):
        raise InputError(f"The protocol {split.protocol} holds no validation images out; choose another with --protocol.")
    embed = embed_batches or encoder.embed_batches
    queries, q = _codes(embed, dataset, _sample(split.validation, MAX_QUERIES), progress)
    items, db = _codes(embed, dataset, _sample(split.validation_database, MAX_ITEMS), progress)
    labels = dataset.require_labels().values
    found = calibrate(q, labels[queries], db, labels[items], encoder.bits)
    with refresh_card(model):
        found.save(model)
    return found


def _calibrate_vectors(model: Path, data: str | None, device: str, progress: Progress) -> Calibration:
    """Calibrate a model that takes vectors on a file of labeled vectors: some as queries against others."""
    if data is None:
        raise InputError(f"{model} takes vectors; name a file of labeled vectors that it was not fitted on with --data.")
    file = read_vectors(data)
    if file.labels is None:
        raise InputError(f"{data} has no labels, by which the precision is measured.")
    hasher = cast("VectorHasher", load_encoder(model, device))
    labeled = file.labels.labeled()
    chosen = labeled[permutation(len(labeled), 0, "calibration")[: MAX_QUERIES + MAX_ITEMS]]
    size = min(MAX_QUERIES, len(chosen) // 2)
    queries, items = np.sort(chosen[:size]), np.sort(chosen[size:])
    if not size:
        raise InputError(f"{data} has too few labeled vectors to measure a precision.")
    q, db = (hasher.encode(file.values[rows], progress=progress) for rows in (queries, items))
    found = calibrate(q, file.labels.values[queries], db, file.labels.values[items], hasher.bits)
    with refresh_card(model):
        found.save(model)
    return found


def _codes(embed_batches: "EmbedBatches", dataset: Dataset, images: Indices, progress: Progress) -> tuple[Indices, Packed]:
    """Return the readable images (n,) and their codes (n, bytes)."""
    batches = list(embed_batches(dataset.images, SkippedItems(), indices=images, progress=progress))
    readable = np.concatenate([indices for indices, _ in batches])
    return readable, pack(binarize(np.concatenate([embeddings for _, embeddings in batches])))


def _sample(images: Indices, max_images: int) -> Indices:
    chosen: Indices = np.sort(images[permutation(len(images), 0, "calibration")[:max_images]])
    return chosen
