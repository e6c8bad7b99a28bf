"""The service of an index on a Milvus server."""

from pathlib import Path

import numpy as np
import pytest

from helpers.milvus_server import Server
from helpers.service import serving
from proxyhash.index.base import Index

pytestmark = pytest.mark.slow


def test_index_on_a_server_is_searched_listed_and_changed(tmp_path: Path) -> None:
    with Server(tmp_path / "milvus") as server:
        address = f"{server.address}/photos"
        with Index.open(address, bits=16) as index:
            index.add(np.array([[0, 0], [0, 255], [255, 255]], np.uint8), ["a/1", "a/2", "b/1"], ["a", "a", "b"])
        with serving(address, log=tmp_path / "log") as running, running.writer() as client:
            matches = client.post("/api/v1/search", json={"code": "0000", "k": 2}).json()["matches"]
            assert [(match["key"], match["distance"]) for match in matches] == [("a/1", 0), ("a/2", 8)]
            by_key = client.post("/api/v1/search", json={"key": "b/1", "k": 1}).json()["matches"]
            assert by_key[0]["key"] == "b/1"
            assert client.get("/api/v1/items/a/2").json() == {
                "key": "a/2",
                "labels": ["a"],
                "has_image": False,
                "columns": {},
            }
            assert len(client.get("/api/v1/items").json()["items"]) == 3
            assert client.post("/api/v1/items", json={"items": [{"key": "c", "code": "00ff"}]}).json()["added"] == 1
            assert client.delete("/api/v1/items/c").json() == {"deleted": 1}
            assert client.get("/api/v1/items/c").status_code == 404
