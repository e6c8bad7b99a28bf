"""Access control: hosts, tokens for writing, origins, and image files that can be read."""

import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from fastapi import HTTPException

from helpers.images import save_image
from helpers.service import TOKEN, RunningService, make_code_index, serving
from proxyhash.index.local.items import Item
from proxyhash.serve.security import check_token, is_allowed_host, read_token
from proxyhash.serve.thumbnails import read_image_file
from proxyhash.utils.errors import InputError, ProxyhashWarning

NEW = {"items": [{"key": "new", "code": "00000000", "labels": ["x"]}]}


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ä"]
)
def test_wrong_token_cannot_write(photo_service: RunningService, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}
    with photo_service.client(headers=headers) as client:
        for method, path, body in (
            ("POST", "/items", NEW),
            ("POST", "/items/delete", {"keys": ["c/0.png"]}),
            ("POST", "/items?key=a", {}),
            ("DELETE", "/items/c/0.png", None),
        ):
            response = client.request(method, f"/api/v1{path}", json=body)
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/api/v1/info").json()["items"] == 13


def test_token_allows_adding_and_deleting(photo_service: RunningService) -> None:
    image = (photo_service.index.parent / "photos" / "c" / "0.png").read_bytes()
    with photo_service.writer() as client:
        assert client.post("/api/v1/items", json=NEW).json() == {"added": 1, "replaced": 0}
        assert client.post("/api/v1/items", json=NEW).json() == {"added": 0, "replaced": 1}
        found = client.post("/api/v1/search", json={"code": "00000000", "k": 1}).json()["matches"][0]
        assert (found["key"], found["labels"], found["has_image"]) == ("new", ["x"], False)
        parameters = {"key": "a/copy", "labels": ["one", "two"]}
        added = client.post("/api/v1/items", content=image, params=parameters, headers={"Content-Type": "image/png"})
        assert added.json() == {"added": 1, "replaced": 0}
        assert client.get("/api/v1/items/a/copy").json()["labels"] == ["one", "two"]
        again = client.post("/api/v1/items", files={"image": image}, data=parameters)
        assert again.json() == {"added": 0, "replaced": 1}
        same = client.post("/api/v1/search", json={"key": "a/copy"}).json()["matches"]
        assert {match["key"] for match in same if match["distance"] == 0} >= {"a/copy", "c/0.png"}
        assert client.delete("/api/v1/items/a/copy").json() == {"deleted": 1}
        assert client.delete("/api/v1/items/a/copy").status_code == 404
        unknown = client.post("/api/v1/items/delete", json={"keys": ["new", "unknown"]})
        assert unknown.status_code == 404
        assert unknown.json()["detail"] == "The index has no item unknown; nothing was removed."
        assert client.post("/api/v1/items/delete", json={"keys": ["new"]}).json() == {"deleted": 1}
        twice = client.post("/api/v1/items", json={"items": NEW["items"] * 2})
        assert "new occurs twice" in twice.json()["detail"]
        lengths = client.post("/api/v1/items", json={"items": [*NEW["items"], {"key": "b", "code": "00"}]})
        assert lengths.json()["detail"] == "All codes or vectors of an index have one length; these have several."
    assert TOKEN not in photo_service.log.read_text(encoding="utf-8")


def test_service_without_token_is_read_only(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i"), {"token": None}) as running, running.writer() as client:
        response = client.post("/api/v1/items/delete", json={"keys": ["item 1"]})
        assert response.status_code == 403
        assert "read-only" in response.json()["detail"]
        assert not client.get("/api/v1/info").json()["writable"]
        # A writer elsewhere that holds its lock does not delay searches.
        with sqlite3.connect(running.index / "index.sqlite", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            assert client.post("/api/v1/search", json={"key": "item 1"}).status_code == 200
            other.execute("ROLLBACK")
        other.close()


def test_body_is_not_read_before_the_token_is_checked(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        response = client.post("/api/v1/items", content=b"{" * 1000, headers={"Content-Type": "application/json"})
        assert response.status_code == 401


def test_other_host_names_are_refused(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("evil.example", 421), ("", 421)):
            assert client.get("/api/v1/info", headers={"Host": host}).status_code == status
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True), ("localhost:8000", True), ("127.0.0.1:8000", True), ("[::1]:8000", True), ("[::1]", True),
        ("192.168.0.7", True), ("photos.example", True), ("Photos.Example.:443", True), ("", False), (":80", False),
        ("other.example", False), ("127.0.0.1.evil.example", False), ("localhost@evil.example", False), ("[evil]", False),
    ],
)  # fmt: skip
def test_allowed_hosts(host: str, allowed: bool) -> None:
    assert is_allowed_host(host, frozenset({"photos.example"})) is allowed


def test_only_named_origins_may_use_the_api(tmp_path: Path) -> None:
    settings = {"allowed_origins": ["https://example.org"]}
    with serving(make_code_index(tmp_path / "i"), settings) as running, running.client() as client:
        for origin, allowed in (("https://example.org", "https://example.org"), ("https://evil.example", None)):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            preflight = client.options("/api/v1/search", headers=headers)
            assert preflight.headers.get("Access-Control-Allow-Origin") == allowed
            response = client.post("/api/v1/search", json={"code": "0000"}, headers={"Origin": origin})
            assert response.headers.get("Access-Control-Allow-Origin") == allowed


def test_no_origin_is_allowed_by_default(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        assert client.options("/api/v1/search", headers=headers).status_code == 405
        response = client.get("/api/v1/info", headers={"Origin": "https://example.org"})
        assert "Access-Control-Allow-Origin" not in response.headers


def test_forwarded_headers_count_only_from_trusted_proxies(tmp_path: Path) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
    for proxies, client_address in ((["127.0.0.1"], "203.0.113.7"), (["192.0.2.1"], "127.0.0.1"), ([], "127.0.0.1")):
        folder = make_code_index(tmp_path / str(len(proxies)) / client_address, 5)
        with serving(folder, config={"trusted_proxies": proxies}) as running, running.client() as client:
            client.get("/api/v1/info", headers=headers)
            lines = running.log_lines(containing="/api/v1/info")
            line = next(line for line in lines if line.get("path") == "/api/v1/info")
            assert line["client"] == client_address


def test_token_comes_from_a_private_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXYHASH_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("PROXYHASH_TOKEN", TOKEN)
    assert read_token(None) == TOKEN
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n", encoding="ascii")
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.chmod(0o644)
    with pytest.warns(ProxyhashWarning, match="Others can read the token"):
        read_token(path)
    path.chmod(0o600)
    for bad in ("short", "a" * 15, "with space in the middle", "ä" * 20):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(InputError, match="token"):
            read_token(path)
    with pytest.raises(InputError, match="cannot be read from"):
        read_token(tmp_path / "absent")
    check_token(f"bearer {TOKEN}", TOKEN)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save_image(np.zeros((4, 4, 3)), tmp_path / "root" / "in" / "side.png")
    save_image(np.zeros((4, 4, 3)), tmp_path / "secret.png")
    return tmp_path / "root"


def test_files_of_the_root_are_read(root: Path) -> None:
    (root / "link.png").symlink_to("in/side.png")
    for name in ("in/side.png", "link.png", "in/../in/side.png"):
        assert read_image_file(Item(0, name, (), root / name, root), 10_000).data[1:4] == b"PNG"
    with pytest.raises(HTTPException) as refused:
        read_image_file(Item(0, "a", (), root / "in" / "side.png", root), 10)
    assert "more than 10 bytes" in refused.value.detail


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "in/../../secret.png", "out.png", "outside/secret.png", "in", ".", "absent.png", "pipe", "a\0b"],
)
def test_nothing_outside_the_root_is_read(root: Path, name: str) -> None:
    (root / "out.png").symlink_to(root.parent / "secret.png")
    (root / "outside").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    with pytest.raises(HTTPException) as refused:
        read_image_file(Item(0, name, (), root / name, root), 10_000)
    assert refused.value.status_code == 404


def test_absolute_path_in_a_hostile_index_is_not_read(root: Path) -> None:
    secret = root.parent / "secret.png"
    with pytest.raises(HTTPException):
        read_image_file(Item(0, str(secret), (), root / secret, root), 10_000)


def test_thumbnails_are_made_of_files_of_the_index_only(photo_service: RunningService) -> None:
    photos = photo_service.index.parent / "photos"
    with photo_service.client() as client:
        for _ in range(2):
            response = client.get("/api/v1/thumbnails/c/0.png", params={"size": 16})
            assert (response.status_code, response.headers["Content-Type"]) == (200, "image/jpeg")
        unchanged = client.get(
            "/api/v1/thumbnails/c/0.png", params={"size": 16}, headers={"If-None-Match": response.headers["ETag"]}
        )
        assert unchanged.status_code == 304
        assert client.get("/api/v1/thumbnails/%2e%2e/i/index.sqlite").status_code == 404
        hidden = photos / "c" / "0.png"
        hidden.rename(photos / "c" / "hidden")
        (photos.parent / "secret.png").write_bytes((photos / "d" / "1.png").read_bytes())
        hidden.symlink_to(photos.parent / "secret.png")
        response = client.get("/api/v1/thumbnails/c/0.png")
        hidden.unlink()
        (photos / "c" / "hidden").rename(hidden)
        assert (response.status_code, response.json()["detail"]) == (
            404,
            "The image file of this item is not there any more.",
        )
