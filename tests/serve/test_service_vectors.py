"""Search by vector in the service."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from fastapi.testclient import TestClient

from helpers.models import load_encoder, make_model, make_vector_model
from helpers.service import TOKEN, make_code_index
from proxyhash.data import SkippedItems
from proxyhash.data.vectors import read_vectors
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.upgrade import upgrade
from proxyhash.index.vector_sync import add_vectors
from proxyhash.serve import create_app
from proxyhash.serve.settings import Settings

WIDTH, BITS = 12, 32
VECTORS = np.random.default_rng(0).normal(size=(100, WIDTH)).astype(np.float32)
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    make_vector_model(WIDTH, BITS, 0, folder / "encoder")
    make_vector_model(WIDTH, BITS, 1, folder / "other")
    np.save(folder / "v.npy", VECTORS)
    with LocalIndex.open_folder(folder / "i", model=folder / "encoder") as index:
        add_vectors(index, read_vectors(folder / "v.npy"), keep_vectors=True)
    return folder / "i"


@pytest.fixture(scope="module")
def client(location: Path) -> Iterator[TestClient]:
    with TestClient(create_app(location, Settings(token=TOKEN)), "http://localhost") as client:
        yield client


def search(client: TestClient, **fields: object) -> dict[str, Any]:
    response = client.post("/api/v1/search", json=fields)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_vector_is_encoded_and_searched(client: TestClient, location: Path) -> None:
    with LocalIndex.open_folder(location) as index:
        expected = [(match.key, match.distance) for match in index.search(VECTORS[7:8], 5)[0]]
    code = load_encoder(location.parent / "encoder").encode(VECTORS[7:8])
    found = search(client, vector=VECTORS[7].tolist(), k=5)
    assert [(match["key"], match["distance"]) for match in found["matches"]] == expected
    assert found["code"] == code.tobytes().hex()
    assert found["matches"][0]["has_image"] is False
    reranked = search(client, vector=VECTORS[7].tolist(), k=5, rerank=50)
    assert reranked["matches"][0]["key"] == "v.npy:7"
    assert reranked["matches"][0]["score"] is not None


def test_embedding_of_an_index_of_vectors_is_not_encoded_again(client: TestClient, location: Path) -> None:
    embedding = load_encoder(location.parent / "encoder").embed(VECTORS[3:4])[0]
    assert search(client, embedding=embedding.tolist(), k=1)["matches"][0]["distance"] == 0


def test_info_says_what_the_model_takes(client: TestClient) -> None:
    info = client.get("/api/v1/info").json()
    assert (info["input"], info["width"]) == ("vector", WIDTH)
    assert (info["can_search_images"], info["can_search_vectors"]) == (False, True)


@pytest.mark.parametrize(
    ("vector", "sentence"),
    [
        ([0.5] * (WIDTH + 1), "takes vectors of 12 values, not 13"),
        ([0.5], "takes vectors of 12 values, not 1"),
        ([0] * WIDTH, "all zeros"),
        ([1e300] * WIDTH, "not finite"),
        ([], "at least 1"),
        (["1"] * WIDTH, "valid number"),
        ("0.5", "valid array"),
    ],
)
def test_invalid_vectors_are_refused_in_one_sentence(client: TestClient, vector: object, sentence: str) -> None:
    response = client.post("/api/v1/search", json={"vector": vector})
    assert response.status_code == 422
    assert sentence in response.json()["detail"]
    if vector and isinstance(vector, list):
        body = {"items": [{"key": "a", "vector": vector}]}
        assert client.post("/api/v1/items", json=body, headers=AUTHORIZED).status_code == 422
    assert client.get("/api/v1/items/a").status_code == 404


def test_nan_is_refused(client: TestClient) -> None:
    body = json.dumps({"vector": [float("nan")] * WIDTH})
    response = client.post("/api/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)


def test_exactly_one_query_is_needed(client: TestClient) -> None:
    response = client.post("/api/v1/search", json={"vector": VECTORS[0].tolist(), "key": "v.npy:0"})
    assert response.status_code == 422
    assert "exactly one" in response.json()["detail"]


def test_image_is_refused_by_an_index_of_vectors(client: TestClient) -> None:
    response = client.post("/api/v1/search", content=b"x", headers={"Content-Type": "image/png"})
    assert (response.status_code, response.json()["detail"]) == (422, "The model of the index takes vectors, not images.")
    assert client.get("/api/v1/thumbnails/v.npy:0").status_code == 404


def test_items_are_added_by_vector(client: TestClient) -> None:
    items = [{"key": f"new {row}", "vector": (-VECTORS[row]).tolist(), "labels": ["new"]} for row in range(3)]
    response = client.post("/api/v1/items", json={"items": items}, headers=AUTHORIZED)
    assert response.json() == {"added": 3, "replaced": 0}
    found = search(client, vector=(-VECTORS[1]).tolist(), k=1)["matches"]
    assert [found[0]["key"], found[0]["distance"], found[0]["labels"]] == ["new 1", 0, ["new"]]
    mixed = [items[0], {"key": "code", "code": "00000000"}]
    response = client.post("/api/v1/items", json={"items": mixed}, headers=AUTHORIZED)
    assert (response.status_code, "codes or vectors" in response.json()["detail"]) == (422, True)
    uneven = [items[0], {"key": "b", "vector": [1.0]}]
    assert client.post("/api/v1/items", json={"items": uneven}, headers=AUTHORIZED).status_code == 422
    client.post("/api/v1/items/delete", json={"keys": [f"new {row}" for row in range(3)]}, headers=AUTHORIZED)


def test_wide_vectors_fit_into_a_body(tmp_path: Path) -> None:
    width = 4096
    model = make_vector_model(width, 8, 0, tmp_path / "m")
    vector = np.random.default_rng(0).normal(size=(1, width)).astype(np.float32)
    with LocalIndex.open_folder(tmp_path / "i", model=model) as index:
        index.add(vector, ["a"])
    with TestClient(create_app(tmp_path / "i"), "http://localhost") as client:
        body = json.dumps({"vector": [float(f"{value:.17e}") for value in vector[0].tolist()]})
        assert len(body) > 65_536
        headers = {"Content-Type": "application/json"}
        assert client.post("/api/v1/search", content=body, headers=headers).json()["matches"][0]["distance"] == 0
        response = client.post("/api/v1/search", content=json.dumps({"vector": [0.25] * 10 * width}), headers=headers)
        assert response.status_code == 413


def test_index_without_a_model_or_with_one_for_images_refuses_vectors(tmp_path: Path) -> None:
    make_code_index(tmp_path / "codes")
    with TestClient(create_app(tmp_path / "codes", Settings(token=TOKEN)), "http://localhost") as client:
        response = client.post("/api/v1/search", json={"vector": [1.0]})
        assert (response.status_code, "has no model" in response.json()["detail"]) == (422, True)
        body = {"items": [{"key": "a", "vector": [1.0]}]}
        assert client.post("/api/v1/items", json=body, headers=AUTHORIZED).status_code == 422
        info = client.get("/api/v1/info").json()
        assert (info["input"], info["width"], info["can_search_vectors"]) == ("code", None, False)
    with patch("proxyhash.models.hasher.is_onnx_available", return_value=False):  # an export takes seconds
        model = make_model(16, 0, tmp_path / "model")
    LocalIndex.open_folder(tmp_path / "images", model=model).close()
    with TestClient(create_app(tmp_path / "images"), "http://localhost") as client:
        response = client.post("/api/v1/search", json={"vector": [1.0]})
        assert (response.status_code, "takes images, not vectors" in response.json()["detail"]) == (422, True)
        assert client.get("/api/v1/info").json()["input"] == "image"


def test_vectors_are_encoded_by_the_new_model_after_an_upgrade(client: TestClient, location: Path) -> None:
    with LocalIndex.open_folder(location) as index:
        upgrade(index, load_encoder(location.parent / "other"), SkippedItems())
    expected = load_encoder(location.parent / "other").encode(VECTORS[5:6]).tobytes().hex()
    found = search(client, vector=VECTORS[5].tolist(), k=1)
    assert (found["code"], found["matches"][0]["distance"]) == (expected, 0)
