"""HTTP byte by byte, with both parsers of uvicorn: framing, limits, and requests that are not HTTP."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.service import RunningService, make_code_index, serving
from helpers.wire import BODY, HEAD, REQUEST, Wire, WireResponse


@pytest.fixture(scope="module", params=["httptools", "h11"])
def http_parser(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, http_parser: str) -> Iterator[RunningService]:
    index = make_code_index(tmp_path_factory.mktemp("wire") / "i")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))  # for many connections, here and there
    with serving(index, config={"http": http_parser}, image_bytes=300_000, body_seconds=2.0) as running:
        yield running


def num_matches(response: WireResponse) -> int:
    assert response.status == 200, response
    return len(json.loads(response.body)["matches"])


def test_connection_is_reused_even_byte_by_byte(service: RunningService) -> None:
    with Wire(service) as wire:
        for _ in range(3):
            wire.send(REQUEST)
            assert num_matches(wire.response()) == 1
        wire.send(*(bytes([byte]) for byte in REQUEST))
        assert num_matches(wire.response()) == 1


def test_pipelined_requests_are_answered_in_order(service: RunningService) -> None:
    with Wire(service) as wire, ThreadPoolExecutor(1) as thread:
        other = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
        sending = thread.submit(wire.send, (REQUEST + other) * 500)
        for _ in range(500):
            assert num_matches(wire.response()) == 1
            assert wire.response().status == 404
        sending.result()


def test_chunked_body_is_read(service: RunningService) -> None:
    with Wire(service) as wire:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:5], BODY[5:]))
        wire.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", REQUEST)
        assert num_matches(wire.response()) == 1
        assert num_matches(wire.response()) == 1


def test_expected_continue_is_sent_only_if_the_body_is_wanted(service: RunningService) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert wire.file.readline().startswith(b"HTTP/1.1 100")
        while wire.file.readline() != b"\r\n":
            pass
        wire.send(BODY)
        assert num_matches(wire.response()) == 1
        refused = HEAD.replace(b"/api/v1/search", b"/api/v1/items")
        wire.send(refused + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert wire.response().status == 401


def test_unread_body_is_discarded(service: RunningService) -> None:
    with Wire(service) as wire:
        head = HEAD.replace(b"/api/v1/search", b"/nowhere")
        wire.send(head + b"Content-Length: 250000\r\n\r\n" + b"x" * 250_000, REQUEST)
        assert wire.response().status == 404
        assert num_matches(wire.response()) == 1


@pytest.mark.parametrize("kind", [b"application/json", b"image/png"])
def test_announced_body_that_is_too_large_is_refused_at_once(service: RunningService, kind: bytes) -> None:
    with Wire(service) as wire:
        wire.send(HEAD.replace(b"application/json", kind) + b"Content-Length: 50000000\r\n\r\nx")
        response = wire.response()  # the rest of the body was not sent
        assert response.status == 413
        assert b"The body may have at most" in response.body


@pytest.mark.parametrize("size", [65_537, 900_000])
def test_body_that_grows_too_large_is_refused(service: RunningService, size: int) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + b"x" * size)
        response = wire.response()
        assert response.status == 413
        assert b"at most 65,536 bytes" in response.body


@pytest.mark.parametrize("length", [b"9" * 19, b"9" * 5_002, b"-1", b"1e3", b"0x10", b"1 2", b"", b"\xb2"])
def test_strange_content_length_is_refused(service: RunningService, length: bytes) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Content-Length: " + length + b"\r\n\r\n")
        assert wire.response().status in {400, 413, 422}


SMUGGLING = {
    "length and chunked": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n",
    "list of lengths": b"Content-Length: 4, 5\r\n",
    "plus": b"Content-Length: +4\r\n",
    "space before the colon": b"Content-Length : 4\r\n",
    "folded header": b"Content-Length:\r\n 4\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "chunked is not last": b"Transfer-Encoding: chunked, identity\r\n",
    "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "bare line feed": b"Content-Length: 4\nX: y\r\n",
    "null": b"X: a\0b\r\nContent-Length: 4\r\n",
    "carriage return": b"X: a\rContent-Length: 4\r\n",
    "no name": b": x\r\nContent-Length: 4\r\n",
}


# The parser h11 accepts these two forms, as RFC 9112 allows. It is used only without a proxy that could read them otherwise.
ACCEPTED_BY_H11 = {"folded header", "bare line feed"}


@pytest.mark.parametrize("name", SMUGGLING)
def test_ambiguous_framing_never_gives_a_second_response(service: RunningService, name: str, http_parser: str) -> None:
    if http_parser == "h11" and name in ACCEPTED_BY_H11:
        pytest.skip("h11 has one reading of it")
    headers = SMUGGLING[name]
    smuggled = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Wire(service) as wire:
        wire.send(HEAD + headers + b"\r\n" + smuggled)
        wire.socket.shutdown(socket.SHUT_WR)
        received = wire.file.read()
    assert b'"alive"' not in received
    assert received.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize(
    "chunks",
    [
        b"2\r\n{}nonsense\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\n{}",
        b"zz\r\n{}\r\n",
        b"2 \x00\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_malformed_chunks_are_refused(service: RunningService, chunks: bytes) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert wire.file.readline().split()[1] in {b"400", b"408", b"413"}


@pytest.mark.parametrize("trailer", [b"Host: evil.example", b"Authorization: Bearer x", b"Content-Type: image/png"])
def test_trailers_never_override_headers(service: RunningService, trailer: bytes) -> None:
    """A trailer is ignored, or the request is refused for having the header twice; it never changes the search."""
    with Wire(service) as wire:
        head = HEAD + b"Authorization: Bearer y\r\n"
        chunks = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
        wire.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + trailer + b"\r\n\r\n")
        response = wire.response()
        assert response.status in {200, 400}
        if response.status == 400:
            assert b"has two" in response.body


@pytest.mark.parametrize("name", [b"Host: localhost", b"Authorization: Bearer x", b"Content-Type: application/json"])
def test_two_headers_where_one_is_needed_are_refused(service: RunningService, name: bytes) -> None:
    with Wire(service) as wire:
        wire.send(b"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n" + b"".join([name + b"\r\n"] * 2) + b"\r\n")
        assert wire.response().status == 400


def test_request_without_host_is_refused(service: RunningService) -> None:
    with Wire(service) as wire:
        wire.send(b"GET /api/v1/info HTTP/1.0\r\n\r\n")
        assert wire.response().status in {400, 421}


def test_head_has_no_body_and_http_1_0_closes(service: RunningService) -> None:
    with Wire(service) as wire:
        wire.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert int(wire.response(has_body=False).headers["content-length"]) > 0
        response = wire.response()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert wire.is_closed()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\n\n", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n"])
def test_other_protocols_are_refused(service: RunningService, data: bytes) -> None:
    with Wire(service) as wire:
        wire.send(data)
        wire.socket.shutdown(socket.SHUT_WR)
        received = wire.file.read()
        assert received == b"" or received.startswith(b"HTTP/1.1 400 ")


def test_upgrade_is_ignored(service: RunningService) -> None:
    with Wire(service) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert wire.response().status == 200


def test_slow_body_is_refused_and_delays_nobody(service: RunningService) -> None:
    with Wire(service) as wire, service.client() as client:
        wire.send(HEAD + b"Content-Length: 50\r\n\r\n{")
        assert client.post("/api/v1/search", json={"code": "0000"}).status_code == 200
        response = wire.response()
        assert (response.status, response.headers["connection"]) == (408, "close")
        assert b"did not arrive within 2 seconds" in response.body


def test_many_idle_connections_delay_nobody(service: RunningService) -> None:
    url = httpx.URL(service.url)
    idle = [socket.create_connection((url.host, url.port or 0)) for _ in range(2_000)]
    try:
        with service.client() as client:
            start = time.monotonic()
            for _ in range(20):
                assert client.post("/api/v1/search", json={"code": "0000"}).status_code == 200
            assert time.monotonic() - start < 30
    finally:
        for connection in idle:
            connection.close()


def test_service_recovers_from_a_lack_of_file_descriptors(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        context = serving(make_code_index(tmp_path / "i", 20))
        running = context.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    url = httpx.URL(running.url)
    idle = [socket.create_connection((url.host, url.port or 0)) for _ in range(150)]
    time.sleep(1)
    for connection in idle:
        connection.close()
    search_until_answered(running, seconds=10)
    with running.client() as client:
        assert client.get("/ready").status_code == 200
    context.__exit__(None, None, None)


def search_until_answered(running: RunningService, seconds: float) -> None:
    """Search until the service accepts connections again; it may still be closing old ones."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with running.client() as client:
                response = client.post("/api/v1/search", json={"code": "0000"})
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            assert response.status_code == 200
            return
