"""Data sets from datasets of Hugging Face."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proxyhash.data.dataset import Dataset
from proxyhash.data.decoding import NamedBytes, UnreadableImageError, decode_image
from proxyhash.data.image_objects import ImageObjects
from proxyhash.data.readers.map_style import class_labels, tag_labels
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import UNLABELED, ClassLabels, Labels
from proxyhash.utils.errors import InputError


class HuggingFaceImages(ImageObjects):
    """The image column of a dataset of Hugging Face, decoded here: upright, JPEG at a reduced size."""

    def __init__(self, column: Any, name: str, fingerprint: str) -> None:
        self.column, self.name, self._fingerprint = column, name, fingerprint

    def __len__(self) -> int:
        """Return N."""
        return len(self.column)

    def key(self, index: int) -> str:
        """Return a numbered name."""
        return f"{self.name}-{index:06d}"

    def fingerprint(self) -> str:
        """Return the fingerprint of the dataset."""
        return self._fingerprint

    def image(self, index: int, min_side: int | None = None) -> Image.Image:
        """Return an image of mode RGB."""
        (stored,) = self.column[index].values()
        key = self.key(index)
        if stored is None or (stored.get("bytes") is None and stored.get("path") is None):
            raise UnreadableImageError(key, "has no image")
        if stored.get("bytes") is None:
            return decode_image(Path(stored["path"]), min_side)
        return decode_image(NamedBytes(stored["bytes"], key), min_side)


def is_hugging_face(data: object) -> bool:
    """Return whether an object is one of the library `datasets`, without importing it."""
    return type(data).__module__.split(".")[0] == "datasets"


def from_hugging_face(
    dataset: Any, image: str = "image", label: str | None = "label", *, name: str | None = None, strict: bool = False
) -> Dataset:
    """Return a data set from a dataset of Hugging Face with an image column.

    Images are decoded when they are needed, from the column as it is stored: a format or a transform that was set on the
    dataset is not applied. Features are cached on disk by the fingerprint of the dataset.

    Parameters
    ----------
    dataset
        A `datasets.Dataset`: one split, not streamed.
    image
        The column of images.
    label
        The column of labels: classes (`ClassLabel`, integers or strings), or tags (lists of them, or vectors of 0 and 1).
        None for images without labels.
    name
        The name of the data set; None for that of the dataset.
    strict
        Raise at the first image that cannot be used, instead of counting it in `Dataset.skipped`.

    Raises
    ------
    InputError
        If there is no such column, or if it holds something else.

    Examples
    --------
    >>> from datasets import ClassLabel, Features, Image
    >>> from datasets import Dataset as HuggingFaceDataset
    >>> columns = {"image": [np.zeros((8, 8, 3), np.uint8)] * 2, "label": [0, 1]}
    >>> features = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog"])})
    >>> from_hugging_face(HuggingFaceDataset.from_dict(columns, features)).labels_of(1)
    ('dog',)
    """
    try:
        import datasets
    except ImportError:
        raise InputError('Datasets of Hugging Face need datasets; run pip install "proxyhash[datasets]".') from None

    if isinstance(dataset, datasets.DatasetDict):
        raise InputError(
            f"The dataset has the splits {', '.join(dataset)}; give one of them, dataset[{next(iter(dataset))!r}]."
        )
    if not isinstance(dataset, datasets.Dataset):
        raise InputError(f"A {type(dataset).__name__} cannot be used; load the dataset with streaming=False.")
    for column in (image, label):
        if column is not None and column not in dataset.features:
            known = ", ".join(dataset.features)
            advice = "from_hugging_face(dataset, image=..., label=...)"
            raise InputError(f"The dataset has no column {column!r}, but {known}; name them: {advice}.")
    if not isinstance(dataset.features[image], datasets.Image):
        advice = f"dataset.cast_column({image!r}, datasets.Image())"
        raise InputError(f"The column {image!r} holds no images; files and bytes become images by {advice}.")
    plain = dataset.with_format(None)
    stored = plain.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    called = name or re.sub(r"[^\w.-]+", "-", dataset.info.dataset_name or "hugging-face")
    images = HuggingFaceImages(stored, called, f"hf-{dataset._fingerprint}-{image}")
    labels = None if label is None else _labels(plain.select_columns([label])[:][label], dataset.features[label], label)
    return Dataset(called, images, labels, skipped=SkippedItems(strict))


def _labels(values: list[Any], feature: Any, column: str) -> Labels:
    """Return the labels of a column by the type of its feature."""
    import datasets

    if isinstance(feature, datasets.ClassLabel):
        return ClassLabels(_numbers(values), tuple(feature.names))
    inner = getattr(feature, "feature", None)  # of a list
    if isinstance(inner, datasets.ClassLabel) or _dtype(inner) == "string":
        return _tag_sets(values, inner)
    if inner is not None and _are_vectors(values):
        return tag_labels(np.array(values) != 0, None)
    if _dtype(feature) == "string":
        return ClassLabels.from_names(["" if value is None else value for value in values])
    if _dtype(feature).startswith(("int", "uint", "bool")):
        return class_labels(_numbers(values), None)
    advice = "classes, strings, integers, lists of classes or strings, or vectors of 0 and 1"
    raise InputError(f"The column {column!r} holds {feature}, and labels are {advice}.")


def _dtype(feature: Any) -> str:
    dtype = getattr(feature, "dtype", None)
    return dtype.removeprefix("large_") if isinstance(dtype, str) else ""


def _numbers(values: list[Any]) -> Any:
    return np.array([UNLABELED if value is None else int(value) for value in values], np.int64)


def _are_vectors(values: list[Any]) -> bool:
    """Return whether all lists have one length and hold 0 and 1 only."""
    lengths = {len(value) if isinstance(value, list) else 0 for value in values}
    return len(lengths) == 1 and 0 not in lengths and bool(np.isin(np.array(values), (0, 1)).all())


def _tag_sets(values: list[Any], inner: Any) -> Labels:
    """Return tags from lists of names, or of numbers of named classes."""
    sets = [value or [] for value in values]
    names = getattr(inner, "names", None)
    distinct = range(len(names)) if names is not None else sorted({tag for tags in sets for tag in tags})
    number = {tag: position for position, tag in enumerate(distinct)}
    held = np.zeros((len(sets), len(number)), bool)
    for row, tags in zip(held, sets, strict=True):
        row[[number[tag] for tag in tags]] = True
    return tag_labels(held, names if names is not None else list(number))
