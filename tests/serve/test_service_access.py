"""Access control: hosts, tokens for writing, and files that can be read."""

import os
import sqlite3
from pathlib import Path

import httpx
import numpy as np
import pytest

from helpers.images import save_image
from helpers.service import TOKEN, Service, make_code_index, serving
from proxyhash.index.local.items import Item
from proxyhash.serve.access import check_token, is_allowed_host, read_token
from proxyhash.serve.http import RefusalError
from proxyhash.serve.media import Thumbnails, read_file
from proxyhash.utils.errors import InputError, ProxyhashWarning

NEW = {"items": [{"key": "new", "code": "00000000", "labels": ["x"]}]}


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ä"]
)
def test_wrong_tokens_do_not_write(photo_service: Service, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}
    with photo_service.client() as client:
        for path, asked in (("/api/add/codes", NEW), ("/api/remove", {"keys": ["c/0.png"]}), ("/api/add/image?key=a", {})):
            response = client.post(path, json=asked, headers=headers)  # type: ignore[arg-type]
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/api/info").json()["items"] == 13


def test_who_has_the_token_adds_and_removes(photo_service: Service) -> None:
    image = (photo_service.index.parent / "photos" / "c" / "0.png").read_bytes()
    with photo_service.writer() as client:
        assert client.post("/api/add/codes", json=NEW).json() == {"added": 1, "replaced": 0}
        assert client.post("/api/add/codes", json=NEW).json() == {"added": 0, "replaced": 1}
        found = client.post("/api/search/code", json={"code": "00000000", "k": 1}).json()["matches"][0]
        assert (found["key"], found["labels"], found["image"]) == ("new", ["x"], False)
        parameters = {"key": "copy", "label": ["one", "two"]}
        added = client.post("/api/add/image", content=image, params=parameters, headers={"Content-Type": "image/png"})
        assert added.json() == {"added": 1, "replaced": 0}
        assert client.get("/api/item", params={"key": "copy"}).json()["labels"] == ["one", "two"]
        same = client.post("/api/search/key", json={"key": "copy"}).json()["matches"]
        assert {match["key"] for match in same if match["distance"] == 0} >= {"copy", "c/0.png"}
        unknown = client.post("/api/remove", json={"keys": ["new", "unknown"]})
        assert (unknown.status_code, unknown.json()["error"]) == (422, "The index has no item unknown; nothing was removed.")
        assert client.post("/api/remove", json={"keys": ["new", "copy"]}).json() == {"removed": 2}
        twice = client.post("/api/add/codes", json={"items": NEW["items"] * 2})
        assert "new occurs twice" in twice.json()["error"]
        lengths = client.post("/api/add/codes", json={"items": [*NEW["items"], {"key": "b", "code": "00"}]})
        assert lengths.json()["error"] == "All codes of an index have one length; these have several."
    assert TOKEN not in photo_service.log.read_text(encoding="utf-8")


def test_without_a_token_nobody_writes(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i"), token=None) as running, running.writer() as client:
        response = client.post("/api/remove", json={"keys": ["item 1"]})
        assert response.status_code == 403
        assert "read-only" in response.json()["error"]
        assert not client.get("/api/info").json()["writable"]
        # A writer elsewhere that holds its lock does not keep searches waiting.
        with sqlite3.connect(running.index / "index.sqlite", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            assert client.post("/api/search/key", json={"key": "item 1"}).status_code == 200
            other.execute("ROLLBACK")
        other.close()


def test_names_of_strangers_are_refused(photo_service: Service) -> None:
    with photo_service.client() as client:
        for host, status in (("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("LocalHost:80", 200)):
            assert client.get("/api/info", headers={"Host": host}).status_code == status
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True), ("localhost:8000", True), ("127.0.0.1:8000", True), ("[::1]:8000", True), ("[::1]", True),
        ("192.168.0.7", True), ("photos.example", True), ("Photos.Example.:443", True), ("", False), (":80", False),
        ("other.example", False), ("127.0.0.1.evil.example", False), ("localhost@evil.example", False), ("[evil]", False),
    ],
)  # fmt: skip
def test_addresses_cannot_be_rebound_but_names_can(host: str, allowed: bool) -> None:
    assert is_allowed_host(host, frozenset({"photos.example"})) is allowed


def test_tokens_come_from_a_closed_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert read_file(Item(0, name, (), root / name, root), 10_000).content[1:4] == b"PNG"
    with pytest.raises(RefusalError, match="more than 10 bytes"):
        read_file(Item(0, "a", (), root / "in" / "side.png", root), 10)


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "in/../../secret.png", "out.png", "outside/secret.png", "in", ".", "absent.png", "pipe", "a\0b"],
)
def test_nothing_else_is_read(root: Path, name: str) -> None:
    (root / "out.png").symlink_to(root.parent / "secret.png")
    (root / "outside").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    with pytest.raises(RefusalError) as refusal:
        read_file(Item(0, name, (), root / name, root), 10_000)
    assert refusal.value.status == 404


def test_an_absolute_path_in_a_hostile_index_is_not_read(root: Path) -> None:
    secret = root.parent / "secret.png"
    with pytest.raises(RefusalError):
        read_file(Item(0, str(secret), (), root / secret, root), 10_000)


def test_pictures_are_small_and_only_those_of_the_index(photo_service: Service) -> None:
    photos = photo_service.index.parent / "photos"
    with photo_service.client() as client:
        for _ in range(2):
            response = client.get("/api/image", params={"key": "c/0.png", "side": 16})
            assert (response.status_code, response.headers["Content-Type"]) == (200, "image/jpeg")
        assert client.get("/api/image", params={"key": "../i/index.sqlite"}).status_code == 404
        hidden = photos / "c" / "0.png"
        hidden.rename(photos / "c" / "hidden")
        (photos.parent / "secret.png").write_bytes((photos / "d" / "1.png").read_bytes())
        hidden.symlink_to(photos.parent / "secret.png")
        response = client.get("/api/image", params={"key": "c/0.png"})
        hidden.unlink()
        (photos / "c" / "hidden").rename(hidden)
        assert (response.status_code, response.json()["error"]) == (404, "There is no picture of this item any more.")


def test_small_pictures_are_kept_within_bounds() -> None:
    kept = Thumbnails(10)
    for number in range(4):
        kept.keep((number,), b"1234")
        kept.get((0,))
    assert [kept.get((number,)) is not None for number in range(4)] == [True, False, False, True]


def test_requests_without_a_host_are_refused(photo_service: Service) -> None:
    import socket

    url = httpx.URL(photo_service.url)
    with socket.create_connection((url.host, url.port or 0)) as connection:
        connection.sendall(b"GET /api/info HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.recv(1000)
