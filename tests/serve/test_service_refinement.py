"""Refined searches of the service."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.images import save_image
from helpers.models import make_model, make_vector_model
from helpers.service import RunningService, serving
from proxyhash import Index
from proxyhash.data import SkippedItems
from proxyhash.index.folder_sync import add_folder

VECTORS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for number in range(20):
        save_image(random.integers(0, 256, (16, 16, 3), dtype=np.uint8), folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def image_service(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("refined")
    with Index.open(folder / "i", model=make_model(2, 0, folder / "model"), refine="int8") as index:
        add_folder(index, images, SkippedItems())
        index.add(np.zeros((1, 1), np.uint8), ["by code"])
    with serving(folder / "i") as running:
        yield running


def test_an_image_and_its_key_find_the_item_first(image_service: RunningService, images: Path) -> None:
    client = image_service.client()
    for file in sorted(images.iterdir()):
        by_image = client.post("/api/v1/search", content=file.read_bytes(), headers={"content-type": "image/png"}).json()
        by_key = client.post("/api/v1/search", json={"key": file.name}).json()
        for found in (by_image, by_key):
            assert (found["refined"], found["matches"][0]["key"]) == (True, file.name)


def test_refinement_can_be_turned_off_and_required(image_service: RunningService, images: Path) -> None:
    client, file = image_service.client(), images / "07.png"
    plain = client.post("/api/v1/search", json={"key": file.name, "refine": False}).json()
    assert not plain["refined"]
    keys = [(match["distance"], match["key"]) for match in plain["matches"]]
    assert keys == sorted(keys)
    by_image = client.post(
        "/api/v1/search?refine=false", content=file.read_bytes(), headers={"content-type": "image/png"}
    ).json()
    assert by_image["matches"] == plain["matches"]
    assert not client.post("/api/v1/search", json={"code": "00"}).json()["refined"]
    refused = client.post("/api/v1/search", json={"code": "00", "refine": True})
    assert (refused.status_code, "A refinement needs images, vectors or keys" in refused.text) == (422, True)
    assert not client.post("/api/v1/search", json={"key": "by code"}).json()["refined"]


def test_a_vector_finds_itself_first(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", model=make_vector_model(8, 2, 0, tmp_path / "model"), refine="code") as index:
        index.add(VECTORS, [f"key {row}" for row in range(60)])
    with serving(tmp_path / "i") as running:
        for row in range(0, 60, 7):
            found = running.client().post("/api/v1/search", json={"vector": (3 * VECTORS[row]).tolist()}).json()
            assert (found["refined"], found["matches"][0]["key"]) == (True, f"key {row}")
