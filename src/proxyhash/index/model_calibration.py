"""Calibration of a trained model: its validation images against the rest of its training set."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.data import Dataset, SkippedItems, load_dataset, make_split
from proxyhash.data.images import Indices
from proxyhash.index.calibration import Calibration, calibrate
from proxyhash.index.model_store import load_encoder
from proxyhash.models.card import refresh_card
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import permutation

if TYPE_CHECKING:
    from proxyhash.models.encoder import EmbedBatches

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

    `embed_batches` replaces that of the model; it must give embeddings with the same signs.
    """
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


def _codes(embed_batches: "EmbedBatches", dataset: Dataset, images: Indices, progress: Progress) -> tuple[Indices, Packed]:
    """Return the readable images (n,) and their codes (n, bytes)."""
    batches = list(embed_batches(dataset.images, SkippedItems(), indices=images, progress=progress))
    readable = np.concatenate([indices for indices, _ in batches])
    return readable, pack(binarize(np.concatenate([embeddings for _, embeddings in batches])))


def _sample(images: Indices, max_images: int) -> Indices:
    chosen: Indices = np.sort(images[permutation(len(images), 0, "calibration")[:max_images]])
    return chosen
