"""`create_app` as an ordinary ASGI application: mounted, under a second server, with TLS, from environment variables."""

import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from helpers.service import TOKEN, make_code_index, wait_until_ready
from proxyhash.index.base import Index
from proxyhash.serve import Limits, Settings, create_app
from proxyhash.serve.asgi import app, settings_from_environment, settings_to_environment
from proxyhash.utils.errors import InputError

SEARCH = {"code": "0000", "k": 3}


def test_application_starts_and_ends_with_its_lifespan(tmp_path: Path) -> None:
    with TestClient(create_app(make_code_index(tmp_path / "i")), "http://localhost") as client:
        assert client.get("/ready").status_code == 200
        assert len(client.post("/api/v1/search", json=SEARCH).json()["matches"]) == 3


def test_open_index_gives_its_location(tmp_path: Path) -> None:
    with Index.open(make_code_index(tmp_path / "i")) as index, TestClient(create_app(index), "http://localhost") as client:
        assert client.get("/api/v1/info").json()["items"] == 500


def test_mounted_application_starts_with_the_first_search(tmp_path: Path) -> None:
    inner = create_app(make_code_index(tmp_path / "i"))
    outer = FastAPI()
    outer.mount("/photos", inner)
    client = TestClient(outer, "http://localhost")  # without `with`, no lifespan events are sent
    assert client.get("/photos/health").json() == {"status": "alive"}
    assert len(client.post("/photos/api/v1/search", json=SEARCH).json()["matches"]) == 3
    assert client.get("/photos/ready").status_code == 200
    assert client.get("/photos/").status_code == 200
    assert client.get("/photos/docs").status_code == 200
    assert client.get("/photos/api/v1/items/item 1").json()["key"] == "item 1"
    inner.state.service.close()


def test_mounted_application_becomes_ready_when_it_is_asked(tmp_path: Path) -> None:
    inner = create_app(make_code_index(tmp_path / "i"))
    outer = FastAPI()
    outer.mount("/photos", inner)
    client = TestClient(outer, "http://localhost")
    assert client.get("/photos/ready").status_code == 503
    for _ in range(1200):
        if client.get("/photos/ready").status_code == 200:
            break
        time.sleep(0.05)
    assert client.get("/photos/ready").status_code == 200
    inner.state.service.close()


def test_links_of_the_page_are_relative(tmp_path: Path) -> None:
    with TestClient(create_app(make_code_index(tmp_path / "i")), "http://localhost") as client:
        for path in ("/", "/docs"):
            text = client.get(path).text
            assert 'href="/' not in text
            assert 'src="/' not in text


def test_errors_of_an_index_with_a_short_relative_name_are_about_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_code_index(tmp_path / "i")
    monkeypatch.chdir(tmp_path)
    with TestClient(create_app("i"), "http://localhost") as client:
        assert client.get("/api/v1/items/unknown").status_code == 404
        assert client.post("/api/v1/search", json={"code": "00"}).status_code == 422


def test_missing_index_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no index at"):
        create_app(tmp_path / "absent")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_hypercorn_serves_the_application(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "hypercorn", "--bind", f"127.0.0.1:{port}", "proxyhash.serve.asgi:app()"]
    environment = {**os.environ, "PROXYHASH_INDEX": str(make_code_index(tmp_path / "i")), "PROXYHASH_TOKEN": TOKEN}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            assert len(client.post("/api/v1/search", json=SEARCH).json()["matches"]) == 3
            new = {"items": [{"key": "a/b", "code": "ffff"}]}
            assert client.post("/api/v1/items", json=new).json()["added"] == 1
            assert client.delete("/api/v1/items/a/b").json() == {"deleted": 1}
            assert (
                client.post(
                    "/api/v1/search", content=b"x" * 100_000, headers={"Content-Type": "application/json"}
                ).status_code
                == 413
            )
            assert client.head("/").content == b""
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def wait_for_port(port: int) -> None:
    for _ in range(1200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("Nothing listens.")


def test_settings_pass_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(TOKEN, frozenset({"a.example"}), frozenset({"https://b.example"}), 0.7, Limits(decoders=3))
    for name, value in settings_to_environment("i", settings).items():
        monkeypatch.setenv(name, value)
    assert settings_from_environment() == settings
    for text, sentence in (
        ('{"tokens": "x"}', "has no field tokens"),
        ('{"limits": {"x": 1}}', "has no field x"),
        ('{"limits": []}', "limits has no field"),
        ('{"threshold": "high"}', "is not valid"),
        ("{", "is not valid"),
    ):
        monkeypatch.setenv("PROXYHASH_SETTINGS", text)
        with pytest.raises(InputError, match=sentence):
            settings_from_environment()
    monkeypatch.delenv("PROXYHASH_INDEX")
    with pytest.raises(InputError, match="Set PROXYHASH_INDEX"):
        app()


def test_tls_by_the_options_of_uvicorn(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    command = [
        sys.executable,
        "-c",
        "from proxyhash.cli.app import main; main()",
        "serve",
        str(make_code_index(tmp_path / "i")),
    ]
    command += ["--port", "0", "--ssl-certfile", str(tmp_path / "cert.pem"), "--ssl-keyfile", str(tmp_path / "key.pem")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = next(word for word in process.stdout.readline().split() if word.startswith("https://"))
        with httpx.Client(base_url=url, verify=context, timeout=60) as client:
            assert client.get("/ready").status_code == 200
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
