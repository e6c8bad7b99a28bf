"""Galleries: queries and their nearest images as thumbnails."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.codes import top_k
from proxyhash.data import Dataset, Split, load_dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.split import drop_indices
from proxyhash.evaluation.hasher import embed_split, load_eval_data
from proxyhash.models.hasher import Hasher
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

THUMB_SIZE = 96  # pixels


@dataclass(frozen=True)
class Thumb:
    """One image: a data: URL, its labels, its distance from the query, and whether it is relevant."""

    image_url: str
    caption: str
    distance: int | None = None
    is_relevant: bool | None = None


@dataclass(frozen=True)
class Gallery:
    """Rows of a query and its nearest images."""

    title: str
    rows: tuple[tuple[Thumb, ...], ...]


def load_gallery(model: Path, *, data_dir: Path | None = None, progress: Progress = no_progress) -> Gallery:
    """Make the gallery of the model in a folder, on the data set that it was trained with."""
    hasher = Hasher.load(model)
    if hasher.metadata.get("protocol") is None and hasher.metadata.get("data", {}).get("path"):  # fitted without labels
        dataset = load_dataset(hasher.metadata["data"]["path"], data_dir=data_dir, progress=progress)
        return make_gallery(hasher, dataset, None, progress=progress)
    return make_gallery(hasher, *load_eval_data(hasher, data_dir=data_dir, progress=progress), progress=progress)


def make_gallery(
    hasher: Hasher,
    dataset: Dataset,
    split: Split | None,
    *,
    queries: int = 8,
    matches: int = 10,
    progress: Progress = no_progress,
) -> Gallery:
    """Search the database of a split for some of its queries, the same ones for every model.

    Without a split, random images are searched for in all others.
    """
    if hasher.head.metric != "hamming":
        raise InputError(f"A gallery is searched by Hamming distance, and this model by {hasher.head.metric}.")
    has_labels, split = split is not None, split or _random_queries(dataset, queries)
    nu, readable = embed_split(hasher, dataset, split, progress)
    split = drop_indices(split, np.flatnonzero(~readable))
    chosen = np.sort(generator(0, "gallery").permutation(len(split.query))[:queries])
    asked, codes = split.query[chosen], hasher.head.encode(nu)
    found = top_k(codes[asked], codes[split.database], min(matches, len(split.database)))
    rows = []
    for image, near, places in zip(asked, found.distances, found.indices, strict=True):
        others = split.database[places]
        right = _relevant(dataset, int(image), others).tolist() if has_labels else [None] * len(others)
        answers = zip(others, near, right, strict=True)
        matched = (_thumb(dataset, int(other), int(bits), is_right) for other, bits, is_right in answers)
        rows.append((_thumb(dataset, int(image)), *matched))
    return Gallery(f"{hasher.metadata['config']['method']}, {hasher.bits} bits", tuple(rows))


def _random_queries(dataset: Dataset, queries: int) -> Split:
    """Return a split of random queries and all other images, for data without labels."""
    order = generator(0, "gallery of everything").permutation(len(dataset))
    nothing = np.zeros(0, np.int64)
    asked, searched = np.sort(order[:queries]), np.sort(order[queries:])
    return Split(dataset.name, "none", 1, searched, nothing, nothing, asked, searched, nothing)


def _relevant(dataset: Dataset, query: int, others: Indices) -> NDArray[np.bool_]:
    labels = dataset.require_labels()
    relevant: NDArray[np.bool_] = labels.subset(np.array([query])).relevance(labels.subset(others))[0]
    return relevant


def _thumb(dataset: Dataset, image: int, distance: int | None = None, right: bool | None = None) -> Thumb:
    return Thumb(_thumbnail(dataset, image), _caption(dataset, image), distance, right)


def _caption(dataset: Dataset, image: int) -> str:
    """Return the labels of an image, or its key if it has none."""
    return ", ".join(dataset.labels_of(image)) or dataset.images.key(image)


def _thumbnail(dataset: Dataset, image: int) -> str:
    picture = Image.fromarray(dataset.images.read_square(image, THUMB_SIZE, "cover"))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
