"""Refined searches of the service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
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


def search(client: httpx.Client, file: Path, query: str = "") -> Any:
    headers = {"content-type": "image/png"}
    return client.post(f"/api/v1/search{query}", content=file.read_bytes(), headers=headers).json()


def test_an_image_and_its_key_find_the_item_first(image_service: RunningService, images: Path) -> None:
    with image_service.client() as client:
        for file in sorted(images.iterdir()):
            for found in (search(client, file), client.post("/api/v1/search", json={"key": file.name}).json()):
                assert (found["refined"], found["matches"][0]["key"]) == (True, file.name)


def test_refinement_can_be_turned_off_and_required(image_service: RunningService, images: Path) -> None:
    with image_service.client() as client:
        plain = client.post("/api/v1/search", json={"key": "07.png", "refine": False}).json()
        assert not plain["refined"]
        keys = [(match["distance"], match["key"]) for match in plain["matches"]]
        assert keys == sorted(keys)
        assert search(client, images / "07.png", "?refine=false")["matches"] == plain["matches"]
        assert not client.post("/api/v1/search", json={"code": "00"}).json()["refined"]
        refused = client.post("/api/v1/search", json={"code": "00", "refine": True})
        assert (refused.status_code, "A refinement needs images, vectors or keys" in refused.text) == (422, True)
        assert not client.post("/api/v1/search", json={"key": "by code"}).json()["refined"]


def test_an_added_image_is_refined_too(image_service: RunningService, images: Path, tmp_path: Path) -> None:
    save_image(np.random.default_rng(99).integers(0, 256, (16, 16, 3), dtype=np.uint8), tmp_path / "new.png")
    headers = {"content-type": "image/png"}
    with image_service.writer() as client:
        content = (tmp_path / "new.png").read_bytes()
        client.post("/api/v1/items?key=new.png", content=content, headers=headers).raise_for_status()
        found = search(client, tmp_path / "new.png")
        assert (found["refined"], found["matches"][0]["key"]) == (True, "new.png")
        assert search(client, images / "03.png")["matches"][0]["key"] == "03.png"


def test_a_vector_finds_itself_first(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", model=make_vector_model(8, 2, 0, tmp_path / "model"), refine="code") as index:
        index.add(VECTORS, [f"key {row}" for row in range(60)])
    with serving(tmp_path / "i") as running, running.client() as client:
        for row in range(0, 60, 7):
            found = client.post("/api/v1/search", json={"vector": (3 * VECTORS[row]).tolist()}).json()
            assert (found["refined"], found["matches"][0]["key"]) == (True, f"key {row}")
