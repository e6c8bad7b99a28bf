"""The nginx example in front of a real service."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from PIL import Image

from helpers.nginx import NGINX, REASON, RunningNginx, free_port, running_nginx
from helpers.service import RunningService, make_photo_index, serving, wait_until_ready
from helpers.wire import Wire

pytestmark = pytest.mark.skipif(NGINX is None, reason=REASON)

BODY = b'{"code": "00000000", "k": 1}'
START = b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REQUEST = START + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[RunningService]:
    index = make_photo_index(tmp_path_factory.mktemp("behind-nginx"), model)
    options = {"trusted_proxies": ["127.0.0.1"]}
    with serving(index, settings={"allowed_hosts": ["photos.example.org"]}, config=options) as running:
        yield running


@pytest.fixture(scope="module")
def nginx(service: RunningService) -> Iterator[RunningNginx]:
    with running_nginx(httpx.URL(service.url).port or 0) as running:
        yield running


@pytest.fixture
def client(nginx: RunningNginx) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=nginx.url, timeout=60) as client:
        yield client


def logged(service: RunningService) -> list[dict[str, Any]]:
    """Return the log of all requests so far; a request is logged after its response, and before the next one."""
    httpx.get(f"{service.url}/health", timeout=60)
    return service.log_lines()


def image_file(side: int = 64) -> bytes:
    file = BytesIO()
    Image.new("RGB", (side, side), "red").save(file, "PNG")
    return file.getvalue()


def test_search_and_page_pass_through(client: httpx.Client) -> None:
    response = client.post("/api/v1/search", json={"code": "00000000", "k": 3})
    assert (response.status_code, len(response.json()["matches"])) == (200, 3)
    assert client.get("/", headers={"Host": "photos.example.org"}).status_code == 200
    assert client.get("/", headers={"Host": "elsewhere.example"}).status_code == 421


def test_keys_with_slashes_and_signs_pass_through(client: httpx.Client) -> None:
    for item in client.get("/api/v1/items").json()["items"]:
        for safe in ("", "/"):
            assert client.get(f"/api/v1/items/{quote(item['key'], safe=safe)}").json()["key"] == item["key"]


def test_images_pass_through(client: httpx.Client) -> None:
    form = client.post("/api/v1/search", files={"image": ("a.png", image_file(), "image/png")}, data={"k": "2"})
    raw = client.post("/api/v1/search?k=2", content=image_file(), headers={"Content-Type": "image/png"})
    assert (form.status_code, raw.status_code) == (200, 200)
    assert form.json() == raw.json()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_above_the_limit_is_refused(client: httpx.Client, is_chunked: bool) -> None:
    pieces = [bytes(1_000_000)] * 22
    content = iter(pieces) if is_chunked else b"".join(pieces)
    response = client.post("/api/v1/search", content=content, headers={"Content-Type": "image/png"})
    assert (response.status_code, response.headers["content-type"]) == (413, PROBLEM)
    assert response.json()["detail"] == "A body has at most 20 MB."
    assert "retry-after" not in response.headers


@pytest.mark.parametrize("size", [70_000, 19_000_000])
def test_refusal_of_the_service_reaches_the_client(client: httpx.Client, size: int) -> None:
    response = client.post("/api/v1/search", content=b"x" * size, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert "65,536" in response.json()["detail"]


FRAMINGS = {
    "length and chunked": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n",
    "the same length twice": b"Content-Length: 4\r\nContent-Length: 4\r\n",
    "list of lengths": b"Content-Length: 4, 5\r\n",
    "plus": b"Content-Length: +4\r\n",
    "space before the colon": b"Content-Length : 4\r\n",
    "tab before the colon": b"Transfer-Encoding\t: chunked\r\n",
    "folded header": b"Content-Length:\r\n 4\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "chunked is not last": b"Transfer-Encoding: chunked, identity\r\n",
    "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "bare line feed": b"X: y\nContent-Length: 4\r\n",
    "null": b"X: a\0b\r\nContent-Length: 4\r\n",
    "carriage return": b"X: a\rContent-Length: 4\r\n",
    "no name": b": x\r\nContent-Length: 4\r\n",
    "underscore": b"Content_Length: 4\r\n",
}


ACCEPTED = {"bare line feed", "underscore"}  # nginx sees two requests, and the service sees the same two


@pytest.mark.parametrize("name", FRAMINGS)
def test_ambiguous_framing_smuggles_no_request(nginx: RunningNginx, service: RunningService, name: str) -> None:
    path = f"/{name.replace(' ', '-')}"
    hidden = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with Wire(nginx) as wire:
        wire.send(START + FRAMINGS[name] + b"\r\n0\r\n\r\n" + hidden)
        wire.socket.shutdown(socket.SHUT_WR)
        received = wire.file.read()
    statuses = re.findall(rb"HTTP/1.1 (\d+) ", received)
    seen = [line for line in logged(service) if line.get("path") == path]
    assert len(seen) == statuses.count(b"404"), received
    assert name in ACCEPTED or statuses in ([b"400"], [b"501"]), received


def test_trailers_do_not_reach_the_service(nginx: RunningNginx) -> None:
    """uvicorn would add them to the headers, and the service refuse the second Host with 400."""
    chunks = b"%x\r\n%s\r\n0\r\nHost: evil.example\r\nAuthorization: Bearer x\r\n\r\n" % (len(BODY), BODY)
    with Wire(nginx) as wire:
        wire.send(START + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, REQUEST)
        assert wire.response().status == 200
        assert wire.response().status == 200


def test_two_host_headers_are_refused(nginx: RunningNginx) -> None:
    with Wire(nginx) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
        response = wire.response()
        assert (response.status, response.headers["content-type"]) == (400, PROBLEM)
        assert json.loads(response.body)["title"] == "Bad Request"


def test_thousand_pipelined_requests_are_answered(nginx: RunningNginx) -> None:
    with Wire(nginx) as wire, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(wire.send, REQUEST * 1_000)
        assert {wire.response().status for _ in range(1_000)} == {200}
        sending.result()


def test_half_closed_client_gets_its_response(nginx: RunningNginx) -> None:
    with Wire(nginx) as wire:
        wire.send(REQUEST)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.response().status == 200
        assert wire.is_closed()


def test_long_headers_are_refused_with_a_problem(nginx: RunningNginx) -> None:
    with Wire(nginx) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n")
        response = wire.response()
        assert (response.status, response.headers["content-type"]) == (400, PROBLEM)
        assert "too long" in json.loads(response.body)["detail"]


def test_too_many_requests_of_an_address_are_refused(nginx: RunningNginx) -> None:
    slow = [socket.create_connection(("127.0.0.1", nginx.port), source_address=("127.0.0.3", 0)) for _ in range(40)]
    try:
        for connection in slow:
            connection.sendall(START + b"Content-Length: 9\r\n\r\n{")
        transport = httpx.HTTPTransport(local_address="127.0.0.3")
        with httpx.Client(base_url=nginx.url, timeout=60, transport=transport) as refused:
            response = refused.get("/health")
            assert (response.status_code, response.headers["content-type"]) == (429, PROBLEM)
        assert httpx.get(f"{nginx.url}/health", timeout=60).status_code == 200  # from another address
    finally:
        for connection in slow:
            connection.close()


def test_stopped_service_is_a_problem() -> None:
    with running_nginx(free_port()) as nginx:
        response = httpx.get(f"{nginx.url}/health", timeout=60)
        assert (response.status_code, response.headers["content-type"]) == (502, PROBLEM)
        assert response.json()["status"] == 502
        assert response.headers["retry-after"] == "5"


def test_log_of_the_service_has_the_address_of_the_client(nginx: RunningNginx, service: RunningService) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.4")
    with httpx.Client(base_url=nginx.url, timeout=60, transport=transport) as client:
        client.get("/health", headers={"X-Forwarded-For": "203.0.113.7"})
    clients = {line.get("client") for line in logged(service)}
    assert "127.0.0.4" in clients
    assert "203.0.113.7" not in clients


SCOPE_APP = """
import json, sys
import uvicorn
from proxyhash.serve.server import ServerConfig, uvicorn_options
from proxyhash.serve.settings import Settings

async def app(scope, receive, send):
    if scope["type"] == "http":
        body = json.dumps([scope["client"][0], scope["scheme"], dict(scope["headers"])[b"host"].decode()]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

options = uvicorn_options(Settings(), ServerConfig(trusted_proxies=tuple(sys.argv[2:])))
uvicorn.run(app, port=int(sys.argv[1]), **options)
"""


@contextmanager
def scope_service(*trusted_proxies: str) -> Iterator[int]:
    """Run an application that answers with the client, the scheme and the host that it sees; give its port."""
    port = free_port()
    command = [sys.executable, "-c", SCOPE_APP, str(port), *trusted_proxies]
    process = subprocess.Popen(command, env=os.environ.copy(), stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(port)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def wait_until_listening(port: int) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(retries=20)) as client:
        client.get(f"http://127.0.0.1:{port}/", timeout=60)


FORGED = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "wss", "Host": "photos.example.org"}


@pytest.mark.parametrize(("proxies", "seen"), [(["127.0.0.1"], "127.0.0.5"), ([], "127.0.0.1")])
def test_client_address_is_believed_from_a_named_proxy_only(proxies: list[str], seen: str) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.5")
    with scope_service(*proxies) as port, running_nginx(port) as nginx, httpx.Client(transport=transport) as client:
        assert client.get(nginx.url, headers=FORGED, timeout=60).json() == [seen, "http", "photos.example.org"]
        direct = client.get(f"http://127.0.0.1:{port}/", headers=FORGED, timeout=60).json()
        assert direct == ["127.0.0.5", "http", "photos.example.org"]


@pytest.mark.parametrize(("proxies", "scheme"), [(["127.0.0.1"], "https"), ([], "http")])
def test_scheme_is_that_of_the_connection_to_a_named_proxy(tmp_path: Path, proxies: list[str], scheme: str) -> None:
    trustme = pytest.importorskip("trustme")
    certificate = tmp_path / "certificate.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    with scope_service(*proxies) as port, running_nginx(port, certificate) as nginx:
        answer = httpx.get(nginx.url.replace("http:", "https:"), headers=FORGED, verify=False, timeout=60)
        assert answer.json()[1] == scheme


def test_metrics_are_not_for_clients(client: httpx.Client) -> None:
    response = client.get("/metrics")
    assert (response.status_code, response.headers["content-type"]) == (403, PROBLEM)


def test_service_is_ready_through_nginx(nginx: RunningNginx) -> None:
    wait_until_ready(nginx.url)
