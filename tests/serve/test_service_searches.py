"""Searches by the API give the results of the library; invalid requests get one sentence."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.service import NASTY, Service, make_code_index, serving
from proxyhash.index.local.index import LocalIndex
from proxyhash.serve.browsing import by_chance

QUERY = np.array([0b10110010, 0b01011100], np.uint8)


@pytest.fixture(scope="module")
def code_service(tmp_path_factory: pytest.TempPathFactory) -> "object":
    with serving(make_code_index(tmp_path_factory.mktemp("codes") / "i"), token=None) as running:
        yield running


def by_code(running: Service, **asked: object) -> httpx.Response:
    with running.client() as client:
        return client.post("/api/search/code", json={"code": QUERY.tobytes().hex(), **asked})


def test_a_search_by_code_is_the_library_s(code_service: Service) -> None:
    answer = by_code(code_service, k=20).json()
    with LocalIndex.open_folder(code_service.index) as index:
        expected = index.search(QUERY[None], 20, with_codes=True)[0]
    found = [(match["key"], match["distance"], bytes.fromhex(match["code"])) for match in answer["matches"]]
    assert found == [(match.key, match.distance, match.code) for match in expected]
    assert (answer["bits"], answer["matched"], answer["complete"]) == (16, None, True)
    assert not answer["matches"][0]["image"]


def test_a_radius_leaves_out_what_is_farther(code_service: Service) -> None:
    with LocalIndex.open_folder(code_service.index) as index:
        expected = index.range_search(QUERY[None], 4)[0].keys
    answer = by_code(code_service, k=1000, radius=4).json()
    assert [match["key"] for match in answer["matches"]] == expected
    assert answer["complete"]
    fewer = by_code(code_service, k=len(expected) - 1, radius=4).json()
    assert [match["key"] for match in fewer["matches"]] == expected[:-1]
    assert not fewer["complete"]


@pytest.mark.parametrize("k", [1, 30, 400])
def test_a_label_chooses_the_nearest_that_have_it(code_service: Service, k: int) -> None:
    with LocalIndex.open_folder(code_service.index) as index:
        expected = [match.key for match in index.search(QUERY[None], 500)[0] if "odd" in match.labels]
    answer = by_code(code_service, k=k, label="odd").json()
    assert [match["key"] for match in answer["matches"]] == expected[:k]
    assert answer["complete"]
    assert by_code(code_service, k=3, label="neither").json()["matches"] == []


def test_an_item_finds_itself(photo_service: Service) -> None:
    with photo_service.client() as client:
        answer = client.post("/api/search/key", json={"key": "c/2.png", "k": 1}).json()
        assert answer["matched"]
        assert answer["matches"][0]["distance"] == 0
        assert answer["matches"][0]["expected_precision"] == 1.0


def test_an_image_has_the_code_that_the_library_gives_it(photo_service: Service) -> None:
    photos = photo_service.index.parent / "photos"
    with LocalIndex.open_folder(photo_service.index) as index, photo_service.client() as client:
        for name in ("c/4.png", f"{NASTY}/{NASTY}.png"):
            image = (photos / name).read_bytes()
            parameters = {"k": 5, "rerank": 13}
            answer = client.post(
                "/api/search/image", content=image, params=parameters, headers={"Content-Type": "image/png"}
            ).json()
            expected = index.search([photos / name], 5, rerank=13)[0]
            assert [match["key"] for match in answer["matches"]] == expected.keys
            assert [match["score"] for match in answer["matches"]] == [match.score for match in expected]
            assert answer["code"] == index.code(name).tobytes().hex()


def test_searches_that_come_together_share_scans(code_service: Service) -> None:
    asked = np.random.default_rng(3).integers(0, 256, (200, 2), dtype=np.uint8)
    ks = [1 + number % 12 for number in range(200)]
    with LocalIndex.open_folder(code_service.index) as index:
        expected = [matches.keys for matches in index.search(asked, 12)]
    before = _sample(code_service, "proxyhash_queries_a_scan_count")
    with code_service.client(limits=httpx.Limits(max_connections=40)) as client, ThreadPoolExecutor(40) as threads:

        def ask(number: int) -> list[str]:
            asked_for = {"code": asked[number].tobytes().hex(), "k": ks[number]}
            answer = client.post("/api/search/code", json=asked_for).json()
            return [match["key"] for match in answer["matches"]]

        found = list(threads.map(ask, range(200)))
    assert found == [keys[:k] for keys, k in zip(expected, ks, strict=True)]
    assert _sample(code_service, "proxyhash_queries_a_scan_count") - before < 200


def test_what_others_add_is_found_without_a_restart(code_service: Service) -> None:
    exact = np.array([[0b11111111, 0b00000001]], np.uint8)
    with LocalIndex.open_folder(code_service.index) as other, code_service.client() as client:
        items = client.get("/api/info").json()["items"]
        other.add(exact, ["new"])
        answer = client.post("/api/search/code", json={"code": "ff01", "k": 500}).json()
        assert "new" in [match["key"] for match in answer["matches"] if match["distance"] == 0]
        assert client.get("/api/info").json()["items"] == items + 1
        other.remove(["new"])
        answer = client.post("/api/search/code", json={"code": "ff01", "k": 500}).json()
        assert "new" not in [match["key"] for match in answer["matches"]]


def test_items_are_shown(photo_service: Service) -> None:
    with photo_service.client() as client:
        item = client.get("/api/item", params={"key": f"{NASTY}/{NASTY}.png"}).json()
        assert item == {"key": f"{NASTY}/{NASTY}.png", "labels": [NASTY], "image": True}
        sample = client.get("/api/sample", params={"count": 5}).json()["items"]
        assert len({one["key"] for one in sample}) == 5
        info = client.get("/api/info").json()
        assert (info["items"], info["bits"], info["calibrated"]) == (13, 32, True)
        assert (info["search_by_image"], info["writable"]) == (True, True)


def test_chance_passes_over_what_is_gone(tmp_path: Path) -> None:
    with LocalIndex.open_folder(make_code_index(tmp_path / "i", 40)) as index:
        index.remove([f"item {number}" for number in range(40) if number % 8])
        for _ in range(10):
            assert sorted(item.key for item in by_chance(index, 5)) == ["item 0", "item 16", "item 24", "item 32", "item 8"]


@pytest.mark.parametrize(
    ("path", "asked", "status", "sentence"),
    [
        ("/api/search/code", {"code": "0000", "k": 0}, 422, "k: expected `int` >= 1."),
        ("/api/search/code", {"code": "0000", "k": -1}, 422, "k: expected `int` >= 1."),
        ("/api/search/code", {"code": "0000", "k": 10**9}, 422, "k: expected `int` <= 1000."),
        ("/api/search/code", {"code": "0000", "k": 2.5}, 422, "k: expected `int`"),
        ("/api/search/code", {"code": "0000", "radius": -1}, 422, "radius: expected `int` >= 0."),
        ("/api/search/code", {"code": "00"}, 422, "Codes of 1 bytes do not fit an index of 16 bits, whose codes have 2."),
        ("/api/search/code", {"code": "zz"}, 422, "code: expected `str` matching regex"),
        ("/api/search/code", {"code": ""}, 422, "code: expected `str` matching regex"),
        ("/api/search/code", {"code": "0000", "kk": 1}, 422, "object contains unknown field `kk`."),
        ("/api/search/code", {}, 422, "object missing required field `code`."),
        ("/api/search/key", {"key": "unknown"}, 404, "The index has no item unknown."),
        ("/api/search/key", {"key": ""}, 422, "key: expected `str` of length >= 1."),
        ("/api/search/image", {}, 415, "The Content-Type must be image/jpeg, another kind of image"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(
    code_service: Service, path: str, asked: object, status: int, sentence: str
) -> None:
    with code_service.client() as client:
        response = client.post(path, json=asked)
        assert response.status_code == status
        assert sentence in response.json()["error"]
        assert client.get("/health").json() == {"status": "alive"}


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/nothing", 404, "There is nothing at /nothing."),
        ("GET", "/api/../../etc/passwd", 404, "There is nothing at"),
        ("GET", "/page/../../../../etc/passwd", 404, "There is nothing at"),
        ("DELETE", "/api/info", 405, "/api/info does not take DELETE."),
        ("GET", "/api/item?key=unknown", 404, "The index has no item unknown."),
        ("GET", "/api/image?key=unknown", 404, "The index has no item unknown."),
        ("GET", "/api/image?key=item%201", 404, "There is no picture of this item: it was added as a code."),
        ("GET", "/api/image?key=a&side=100000", 422, "side: expected `int` <= 1024."),
        ("GET", "/api/item?key=%ff", 400, "The query of the address is not readable."),
        ("GET", "/api/item?key=a&key=b", 422, "key may be given once."),
        ("GET", "/api/info?verbose=1", 422, "There is no parameter verbose here."),
    ],
)
def test_what_is_not_there_is_said(code_service: Service, method: str, path: str, status: int, sentence: str) -> None:
    with code_service.client() as client:
        response = client.send(httpx.Request(method, code_service.url + path))
        assert response.status_code == status
        assert sentence in response.json()["error"]
        if status == 405:
            assert response.headers["Allow"] == "GET"


def test_a_body_that_is_no_json_is_refused(code_service: Service) -> None:
    for content in (b"", b"{", b"\xff", b"[" * 100_000, b'{"code": "\\ud800"}'):
        with code_service.client() as client:  # the service may close the connection after such a request
            response = client.post("/api/search/code", content=content, headers={"Content-Type": "application/json"})
            assert response.status_code in {400, 422}
            assert response.json()["error"]


def test_every_answer_has_the_headers_that_guard_a_page(code_service: Service) -> None:
    with code_service.client() as client:
        for path in ("/", "/page/script.js", "/api/info", "/nothing", "/metrics"):
            headers = client.get(path).headers
            assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "Server" not in headers
        assert client.head("/").content == b""


def test_what_is_counted_can_be_read_by_prometheus(code_service: Service) -> None:
    by_code(code_service)
    families = {family.name: family for family in text_string_to_metric_families(_metrics(code_service))}
    counts = {(s.labels["path"], s.labels["status"]): s.value for s in families["proxyhash_requests"].samples}
    assert counts["/api/search/code", "200"] >= 1
    seconds = families["proxyhash_request_seconds"]
    assert seconds.type == "histogram"
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_logs_are_lines_of_json(code_service: Service) -> None:
    by_code(code_service, label="odd")
    lines = [json.loads(line) for line in code_service.log.read_text(encoding="utf-8").splitlines()]
    assert {"event": "request", "method": "POST", "path": "/api/search/code", "status": 200}.items() <= lines[-1].items()


def _metrics(running: Service) -> str:
    with running.client() as client:
        return client.get("/metrics").text


def _sample(running: Service, name: str) -> float:
    families = text_string_to_metric_families(_metrics(running))
    return next(sample.value for family in families for sample in family.samples if sample.name == name)


def test_an_empty_index_has_nothing_to_find(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 0)) as running, running.client() as client:
        assert client.post("/api/search/code", json={"code": "0000"}).json()["matches"] == []
        assert client.get("/api/sample").json() == {"items": []}
        image = client.post("/api/search/image", content=b"x", headers={"Content-Type": "image/png"})
        assert image.status_code == 422
        assert (
            image.json()["error"]
            == "The index holds codes from elsewhere and has no model, so search it with codes or keys."
        )
