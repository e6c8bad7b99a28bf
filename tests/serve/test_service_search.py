"""Searches by the API give the results of the library; invalid requests get one sentence."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.service import NASTY, RunningService, make_code_index, serving
from proxyhash.index.local.index import LocalIndex
from proxyhash.serve.schemas import SearchResponse

QUERY = np.array([0b10110010, 0b01011100], np.uint8)


@pytest.fixture(scope="module")
def code_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with serving(make_code_index(tmp_path_factory.mktemp("codes") / "i"), {"token": None}) as running:
        yield running


def search(running: RunningService, **request: Any) -> httpx.Response:
    with running.client() as client:
        return client.post("/api/v1/search", json=request)


def search_code(running: RunningService, **options: Any) -> dict[str, Any]:
    response: dict[str, Any] = search(running, code=QUERY.tobytes().hex(), **options).json()
    return response


def keys(response: dict[str, Any]) -> list[str]:
    return [match["key"] for match in response["matches"]]


def test_search_by_code_gives_the_results_of_the_library(code_service: RunningService) -> None:
    response = search_code(code_service, k=20)
    with LocalIndex.open_folder(code_service.index) as index:
        expected = index.search(QUERY[None], 20, with_codes=True)[0]
    found = [(match["key"], match["distance"], bytes.fromhex(match["code"])) for match in response["matches"]]
    assert found == [(match.key, match.distance, match.code) for match in expected]
    assert (response["bits"], response["matched"], response["complete"]) == (16, None, True)
    assert not response["matches"][0]["has_image"]


def test_response_has_exactly_the_documented_fields(code_service: RunningService) -> None:
    response = search_code(code_service, k=2)
    assert response == SearchResponse.model_validate(response).model_dump()


def test_search_by_embedding_gives_the_results_of_the_library(code_service: RunningService) -> None:
    embedding = np.random.default_rng(4).normal(size=16).astype(np.float32)
    with LocalIndex.open_folder(code_service.index) as index:
        expected = index.search(embedding[None], 9, rerank=40)[0]
    response = search(code_service, embedding=embedding.tolist(), k=9, rerank=40).json()
    assert keys(response) == expected.keys
    assert response["matches"][0]["score"] == pytest.approx(expected[0].score, rel=1e-5)


def test_radius_leaves_out_farther_items(code_service: RunningService) -> None:
    with LocalIndex.open_folder(code_service.index) as index:
        expected = index.range_search(QUERY[None], 4)[0].keys
    response = search_code(code_service, k=1000, radius=4)
    assert keys(response) == expected
    assert response["complete"]
    fewer = search_code(code_service, k=len(expected) - 1, radius=4)
    assert keys(fewer) == expected[:-1]
    assert not fewer["complete"]


@pytest.mark.parametrize("k", [1, 30, 400])
def test_labels_restrict_the_search(code_service: RunningService, k: int) -> None:
    with LocalIndex.open_folder(code_service.index) as index:
        expected = [match.key for match in index.search(QUERY[None], 500)[0] if "odd" in match.labels]
    response = search_code(code_service, k=k, labels=["odd"])
    assert keys(response) == expected[:k]
    assert response["complete"]
    assert keys(search_code(code_service, k=3, labels=["neither"])) == []
    assert len(keys(search_code(code_service, k=500, labels=["odd", "even"]))) == 500


def test_item_finds_itself(photo_service: RunningService) -> None:
    response = search(photo_service, key="c/2.png", k=1).json()
    assert response["matched"]
    assert response["matches"][0]["distance"] == 0
    assert response["matches"][0]["expected_precision"] == 1.0


@pytest.mark.parametrize("as_form", [False, True])
def test_image_has_the_code_that_the_library_gives_it(photo_service: RunningService, as_form: bool) -> None:
    photos = photo_service.index.parent / "photos"
    with LocalIndex.open_folder(photo_service.index) as index, photo_service.client() as client:
        for name in ("c/4.png", f"{NASTY}/{NASTY}.png"):
            image, options = (photos / name).read_bytes(), {"k": "5", "rerank": "13"}
            if as_form:
                response = client.post("/api/v1/search", files={"image": ("x.png", image)}, data=options)
            else:
                headers = {"Content-Type": "image/png"}
                response = client.post("/api/v1/search", content=image, params=options, headers=headers)
            expected = index.search([str(photos / name)], 5, rerank=13)[0]
            assert keys(response.json()) == expected.keys
            assert response.json()["code"] == index.code(name)[0].tobytes().hex()


def test_concurrent_searches_share_scans(code_service: RunningService) -> None:
    codes = np.random.default_rng(3).integers(0, 256, (200, 2), dtype=np.uint8)
    ks = [1 + number % 12 for number in range(200)]
    with LocalIndex.open_folder(code_service.index) as index:
        expected = [matches.keys for matches in index.search(codes, 12)]
    before = sample(code_service, "proxyhash_search_batch_queries_count")
    with code_service.client(limits=httpx.Limits(max_connections=40)) as client, ThreadPoolExecutor(40) as threads:

        def run(number: int) -> list[str]:
            request = {"code": codes[number].tobytes().hex(), "k": ks[number]}
            return keys(client.post("/api/v1/search", json=request).json())

        found = list(threads.map(run, range(200)))
    assert found == [found_keys[:k] for found_keys, k in zip(expected, ks, strict=True)]
    assert sample(code_service, "proxyhash_search_batch_queries_count") - before < 200


def test_changes_by_others_are_found_without_a_restart(code_service: RunningService) -> None:
    exact = np.array([[0b11111111, 0b00000001]], np.uint8)
    with LocalIndex.open_folder(code_service.index) as other, code_service.client() as client:
        items = client.get("/api/v1/info").json()["items"]
        other.add(exact, ["new"])
        response = search(code_service, code="ff01", k=500).json()
        assert "new" in [match["key"] for match in response["matches"] if match["distance"] == 0]
        assert client.get("/api/v1/info").json()["items"] == items + 1
        other.remove(["new"])
        assert "new" not in keys(search(code_service, code="ff01", k=500).json())


def test_items_are_shown(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        key = f"{NASTY}/{NASTY}.png"
        item = client.get(f"/api/v1/items/{httpx.URL('/', path='/' + key).raw_path.decode()[1:]}").json()
        assert item == {"key": key, "labels": [NASTY], "has_image": True, "columns": {}}
        items = client.get("/api/v1/items", params={"sample": 5}).json()["items"]
        assert len({one["key"] for one in items}) == 5
        info = client.get("/api/v1/info").json()
        assert (info["items"], info["bits"], info["calibrated"]) == (13, 32, True)
        assert (info["can_search_images"], info["writable"]) == (True, True)


def test_pages_list_every_item_once(code_service: RunningService) -> None:
    listed: list[str] = []
    after = None
    with code_service.client() as client:
        while True:
            parameters = {"limit": 150} if after is None else {"limit": 150, "after": after}
            page = client.get("/api/v1/items", params=parameters).json()
            listed += [item["key"] for item in page["items"]]
            after = page["next"]
            if after is None:
                break
    assert listed == sorted(listed)
    assert set(listed) == {f"item {number}" for number in range(500)}


@pytest.mark.parametrize(
    ("request_", "status", "sentence"),
    [
        ({"code": "0000", "k": 0}, 422, "k: input should be greater than or equal to 1."),
        ({"code": "0000", "k": 10**9}, 422, "k: input should be less than or equal to 1000."),
        ({"code": "0000", "k": 2.5}, 422, "k: input should be a valid integer"),
        ({"code": "0000", "k": "3"}, 422, "k: input should be a valid integer"),
        ({"code": "0000", "radius": -1}, 422, "radius: input should be greater than or equal to 0."),
        ({"code": "00"}, 422, "Codes of 1 bytes do not fit an index of 16 bits, whose codes have 2."),
        ({"code": "zz"}, 422, "code: string should match pattern"),
        ({"code": ""}, 422, "code: string should match pattern"),
        ({"code": "0000", "kk": 1}, 422, "kk: extra inputs are not permitted."),
        ({"code": "0000", "labels": [""]}, 422, "labels.0: string should have at least 1 character."),
        ({"code": "0000", "key": "item 1"}, 422, "give exactly one of key, code, embedding and vector."),
        ({}, 422, "give exactly one of key, code, embedding and vector."),
        ({"code": "0000", "rerank": 5}, 422, "rerank needs an embedding, a vector or an image."),
        ({"key": "unknown"}, 404, "The index has no item unknown"),
        ({"key": ""}, 422, "key: string should have at least 1 character."),
        ({"embedding": [0.5]}, 422, "16"),
        ({"embedding": []}, 422, "embedding: list should have at least 1 item"),
    ],
)
def test_mistakes_get_one_sentence(code_service: RunningService, request_: Any, status: int, sentence: str) -> None:
    response = search(code_service, **request_)
    problem = response.json()
    assert (response.status_code, problem["status"]) == (status, status)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert sentence in problem["detail"]
    assert set(problem) - {"field"} == {"type", "title", "status", "detail"}
    assert problem.get("field") == (sentence.partition(": ")[0] if ": " in sentence else None)


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/nothing", 404, "There is nothing at /nothing."),
        ("GET", "/api/v1/../../etc/passwd", 404, "There is nothing at"),
        ("GET", "/page/../../../../etc/passwd", 404, "There is nothing at"),
        ("DELETE", "/api/v1/info", 405, "/api/v1/info does not accept DELETE."),
        ("GET", "/api/v1/items/unknown", 404, "The index has no item unknown"),
        ("GET", "/api/v1/thumbnails/unknown", 404, "The index has no item unknown"),
        ("GET", "/api/v1/thumbnails/item%201", 404, "This item has no image: it was added as a code or a vector."),
        ("GET", "/api/v1/thumbnails/a?size=100000", 422, "size: input should be less than or equal to 1024."),
        ("GET", "/api/v1/items?limit=x", 422, "limit: input should be a valid integer"),
        ("GET", "/api/v1/items?verbose=1", 422, "verbose: extra inputs are not permitted."),
        ("POST", "/api/v1/search", 415, "curl -F image=@photo.jpg"),
    ],
)
def test_wrong_addresses_get_one_sentence(
    code_service: RunningService, method: str, path: str, status: int, sentence: str
) -> None:
    with code_service.client() as client:
        response = client.send(httpx.Request(method, code_service.url + path))
        assert response.status_code == status
        assert sentence in response.json()["detail"]
        if status == 405:
            assert response.headers["Allow"] == "GET"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 60_000, b'{"code": "\\ud800"}', b"null", b"[]"])
def test_invalid_json_is_refused(code_service: RunningService, content: bytes) -> None:
    with code_service.client() as client:
        response = client.post("/api/v1/search", content=content, headers={"Content-Type": "application/json"})
        assert response.status_code in {400, 422}
        assert response.json()["detail"]


def test_options_of_json_belong_into_the_body(code_service: RunningService) -> None:
    with code_service.client() as client:
        response = client.post("/api/v1/search?k=3", json={"code": "0000"})
        assert (response.status_code, "put its options into the body" in response.json()["detail"]) == (422, True)


def test_every_response_has_the_security_headers(code_service: RunningService) -> None:
    with code_service.client() as client:
        for path in ("/", "/docs", "/api/v1/info", "/nothing", "/metrics"):
            headers = client.get(path).headers
            assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "Server" not in headers
        assert client.head("/").content == b""


def test_metrics_can_be_read_by_prometheus(code_service: RunningService) -> None:
    search_code(code_service)
    families = {family.name: family for family in text_string_to_metric_families(metrics(code_service))}
    counts = {
        (s.labels["route"], s.labels["status"]): s.value
        for s in families["proxyhash_requests"].samples
        if "route" in s.labels
    }
    assert counts["/api/v1/search", "200"] >= 1
    assert families["proxyhash_requests"].type == "counter"
    assert families["proxyhash_request_duration_seconds"].type == "histogram"
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6
    assert families["proxyhash_search_process_resident_memory_bytes"].samples[0].value > 1e6


def test_unknown_paths_share_one_metric(code_service: RunningService) -> None:
    with code_service.client() as client:
        for number in range(5):
            client.get(f"/nothing/{number}")
    assert "nothing" not in metrics(code_service)


def test_log_has_lines_of_json_without_queries(code_service: RunningService) -> None:
    search_code(code_service, labels=["odd"])
    with code_service.client() as client:
        client.get("/api/v1/items", params={"after": "a secret"})
    lines = {line.get("path"): line for line in code_service.log_lines('"/api/v1/items"')}
    assert {"method": "POST", "status": 200, "message": "request"}.items() <= lines["/api/v1/search"].items()
    assert "secret" not in code_service.log.read_text(encoding="utf-8")


def metrics(running: RunningService) -> str:
    with running.client() as client:
        return client.get("/metrics").text


def sample(running: RunningService, name: str) -> float:
    families = text_string_to_metric_families(metrics(running))
    return next(one.value for family in families for one in family.samples if one.name == name)


def test_empty_index_has_no_matches(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 0)) as running, running.client() as client:
        assert client.post("/api/v1/search", json={"code": "0000"}).json()["matches"] == []
        assert client.get("/api/v1/items").json() == {"items": [], "next": None}
        assert client.get("/api/v1/items?sample=3").json() == {"items": [], "next": None}
        image = client.post("/api/v1/search", content=b"x", headers={"Content-Type": "image/png"})
        assert image.status_code == 422
        assert "has no model; search by code, key or embedding." in image.json()["detail"]
