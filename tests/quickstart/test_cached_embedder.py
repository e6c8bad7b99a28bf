"""Embeddings from cached features have the signs of those of the network."""

from pathlib import Path

import numpy as np
import pytest

from helpers.images import write_images
from proxyhash.codes.bits import binarize, pack
from proxyhash.data import SkippedItems, load_dataset
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.quickstart import embedding
from proxyhash.quickstart.embedding import CachedEmbedder


@pytest.mark.parametrize("margin", [0.0, 0.05, 2.0])
def test_codes_are_those_of_the_network(margin: float, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MARGIN", margin)
    monkeypatch.setattr(embedding, "CHUNK_SIZE", 7)
    write_images(tmp_path / "photos", [f"{label}/{number}.png" for label in "ab" for number in range(10)])
    (tmp_path / "photos" / "a" / "3.png").write_bytes(b"damaged")
    hasher, dataset = Hasher.load(model), load_dataset(tmp_path / "photos")
    backbone = hasher.network.features.backbone
    features = cached_features(dataset, backbone, hasher.transform, folder=tmp_path / "cache")
    embedder, skipped = CachedEmbedder(hasher, dataset.images, features), SkippedItems()
    batches = list(embedder.embed_batches(dataset.images, skipped))
    readable = np.delete(np.arange(20), 3)
    np.testing.assert_array_equal(np.concatenate([indices for indices, _ in batches]), readable)
    codes = pack(binarize(np.concatenate([embeddings for _, embeddings in batches])))
    paths = [tmp_path / "photos" / dataset.images.key(int(index)) for index in readable]
    np.testing.assert_array_equal(codes, hasher.encode(paths))
    assert skipped.as_dict() == {"unreadable image": {"count": 1, "examples": ["a/3.png"]}}


def test_changed_files_go_through_the_network(model: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "photos", ["a.png", "b.png"])
    hasher, dataset = Hasher.load(model), load_dataset(tmp_path / "photos")
    backbone = hasher.network.features.backbone
    features = cached_features(dataset, backbone, hasher.transform, folder=tmp_path / "cache")
    embedder = CachedEmbedder(hasher, dataset.images, features)
    write_images(tmp_path / "photos", ["a.png", "b.png"], first_seed=50)
    changed = load_dataset(tmp_path / "photos").images
    ((_, embeddings),) = embedder.embed_batches(changed, SkippedItems())
    np.testing.assert_array_equal(embeddings, hasher.embed(changed))
