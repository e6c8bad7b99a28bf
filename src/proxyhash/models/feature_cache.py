"""Cache of the features q(x) of data sets on disk."""

import hashlib
from pathlib import Path

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.models.extraction import cache_folder, clear_if_changed, describe_pixels, fastest_backend, hash_network
from proxyhash.models.network import NormalizedBackbone
from proxyhash.models.row_cache import CachedRows, RowCache
from proxyhash.utils.progress import Progress, no_progress

FORMAT = 2


def cached_features(
    dataset: Dataset,
    backbone: Backbone,
    transform: Transform,
    *,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> CachedRows:
    """Return the features (N, width) of all images of a data set, from the cache if possible.

    The key of an entry is a hash of the weights, the images and the transform. An interrupted extraction is resumed. For a
    network of the user, the key also covers its printed structure, and an entry is replaced if the network gives other
    outputs for two fixed images than before: its code may have changed.
    """
    name = f"{dataset.name}-{backbone.config.name.replace('/', '-')}-{transform.size}"
    fingerprint = dataset.images.fingerprint()
    entry = (folder or cache_folder("features", fingerprint)) / f"{name}-{_key(fingerprint, backbone, transform)[:16]}"
    rows = RowCache(entry, "features", (len(dataset), backbone.config.num_features))
    if isinstance(backbone, WrappedBackbone):
        clear_if_changed(rows, NormalizedBackbone(backbone), transform.size)
    if not rows.is_complete():
        _extract(rows, dataset, backbone, transform, progress)
    features = rows.read()
    for index in np.flatnonzero(~features.readable):
        dataset.skipped.add("unreadable image", dataset.images.key(int(index)))
    return features


def _extract(rows: RowCache, dataset: Dataset, backbone: Backbone, transform: Transform, progress: Progress) -> None:
    backend = fastest_backend(NormalizedBackbone(backbone), transform.size, "features")
    rows.fill(dataset, backend, transform, "extracting features", progress)


def _key(fingerprint: str, backbone: Backbone, transform: Transform) -> str:
    digest = hashlib.sha256(f"{FORMAT};{fingerprint};{describe_pixels(transform)};".encode())
    hash_network(backbone, backbone, digest)
    return digest.hexdigest()
