"""Small data sets in their official layouts."""

import hashlib
import io
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from helpers.images import write_images
from proxyhash.data.catalog import CIFAR10, Archive, DatasetInfo
from proxyhash.data.dataset import SPLITS, Dataset
from proxyhash.data.images import ArrayImages
from proxyhash.labels import ClassLabels, TagLabels


class _Python2Pickler(pickle._Pickler):
    """Writes what Python 2 wrote: protocol 2, texts and bytes both as its one kind of string."""

    dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)

    def _string(self, value: str | bytes) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)  # type: ignore[attr-defined]

    dispatch[str] = dispatch[bytes] = _string


def python2_pickle(content: Any) -> bytes:
    buffer = io.BytesIO()
    _Python2Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_cifar(folder: Path, record: DatasetInfo, rows: int = 20) -> DatasetInfo:
    """Write every file of `record`, `rows` images each, and return the record with the checksums of these files."""
    folder.mkdir(parents=True)
    files = []
    for number, (name, _) in enumerate(record.files):
        content = python2_pickle(_meta(record) if "meta" in name else _batch(record, number, rows))
        (folder / name).write_bytes(content)
        files.append((name, hashlib.md5(content).hexdigest()))
    return replace(record, files=tuple(files))


def _meta(record: DatasetInfo) -> dict[str, Any]:
    names = [f"class{number}" for number in range(record.num_classes)]
    if record is CIFAR10:
        return {"num_cases_per_batch": 20, "label_names": names, "num_vis": 3072}
    return {"fine_label_names": names, "coarse_label_names": [f"group{number}" for number in range(20)]}


def _batch(record: DatasetInfo, seed: int, rows: int) -> dict[str, Any]:
    data = np.random.default_rng(seed).integers(0, 256, (rows, 3072), dtype=np.uint8)
    labels = [row % record.num_classes for row in range(rows)]
    shared = {"batch_label": f"batch {seed}", "data": data, "filenames": [f"{seed}_{row}.png" for row in range(rows)]}
    if record is CIFAR10:
        return {**shared, "labels": labels}
    return {**shared, "fine_labels": labels, "coarse_labels": [label // 5 for label in labels]}


def pack_tar(folder: Path, archive: Path) -> Archive:
    """Pack a folder as the publisher does, and return what a record would say about the archive."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    content = archive.read_bytes()
    return Archive(f"https://example.org/{archive.name}", hashlib.md5(content).hexdigest(), len(content))


def write_ilsvrc(folder: Path, classes: int = 8, train: int = 6, val: int = 2) -> None:
    names = [f"n{1440764 + number:08d}" for number in range(classes)]
    write_images(folder, (f"train/{name}/{name}_{image}.JPEG" for name in names for image in range(train)))
    write_images(folder, (f"val/{name}/val_{image}.JPEG" for name in names for image in range(val)), 10_000)


def write_nuswide(folder: Path, images: int = 60, tags: int = 25, *, flat: bool = False) -> "np.ndarray[Any, Any]":
    """Write list, tag files and images; the first tag is the rarest, the last image has none. Returns the tags (N, T)."""
    held = np.random.default_rng(0).random((images, tags)) < np.linspace(0.05, 0.6, tags)
    held[-1] = False
    names = [f"topic{number % 3}\\{number:04d}_{7 * number}.jpg" for number in range(images)]
    (folder / "ImageList").mkdir(parents=True)
    (folder / "ImageList" / "Imagelist.txt").write_text("\r\n".join(names) + "\r\n")
    (folder / "Groundtruth" / "AllLabels").mkdir(parents=True)
    for tag in range(tags):
        lines = "\n".join("1" if flag else "0" for flag in held[:, tag])
        (folder / "Groundtruth" / "AllLabels" / f"Labels_tag{tag:02d}.txt").write_text(lines + "\n")
    paths = (name.rsplit("\\", 1)[-1] if flat else name.replace("\\", "/") for name in names)
    write_images(folder / ("images" if flat else "Flickr"), paths)
    return held


def labeled_dataset(name: str, labels: "np.ndarray[Any, Any]", queries: int = 0) -> Dataset:
    """A data set of one-pixel images with these classes; the last `queries` images are its own queries."""
    pixels = np.zeros((len(labels), 1, 1, 3), np.uint8)
    names = tuple(f"class{number}" for number in range(int(labels.max()) + 1))
    parts = np.full(len(labels) if queries else 0, SPLITS.index("train"), np.int8)
    parts[len(labels) - queries :] = SPLITS.index("query")
    return Dataset(name, ArrayImages(pixels), ClassLabels(labels, names), splits=parts)


def tagged_dataset(name: str, images: int, tags: int = 21) -> Dataset:
    """A data set of one-pixel images with a long tail of tags, at least one for each image, by arithmetic alone."""
    mixed = (np.arange(1, images + 1)[:, None] * (2 * np.arange(tags) + 3) * 2_654_435_761) % 2**32
    held = mixed < np.linspace(0.02, 0.3, tags) * 2**32
    held[np.arange(images), np.arange(images) % tags] = True
    names = tuple(f"tag{number}" for number in range(tags))
    return Dataset(name, ArrayImages(np.zeros((images, 1, 1, 3), np.uint8)), TagLabels(held, names))
