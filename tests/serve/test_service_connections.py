"""The wire: what clients may do with a connection, byte by byte."""

import asyncio
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from helpers.service import Service, make_code_index, serving
from proxyhash.serve.connections import Connection, watch
from proxyhash.serve.http import Answer
from proxyhash.serve.requests import Request
from proxyhash.serve.settings import Limits

BODY = b'{"code": "0000", "k": 1}'
HEAD = b"POST /api/search/code HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(make_code_index(tmp_path_factory.mktemp("wire") / "i"), body_bytes=300_000, body_seconds=2.0) as running:
        yield running


class Wire:
    """A client that sees every byte."""

    def __init__(self, running: Service) -> None:
        url = httpx.URL(running.url)
        self.socket = socket.create_connection((url.host, url.port or 0), timeout=20)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode("latin-1").partition(": ")
            headers[name] = value
        return status, headers, self.file.read(int(headers["content-length"])) if body else b""

    def is_closed(self) -> bool:
        return self.file.read(1) == b""


def found(answer: tuple[int, dict[str, str], bytes]) -> int:
    assert answer[0] == 200, answer
    return len(json.loads(answer[2])["matches"])


def test_a_connection_lasts_for_many_requests_even_byte_by_byte(service: Service) -> None:
    with Wire(service) as wire:
        for _ in range(3):
            wire.send(REQUEST)
            assert found(wire.answer()) == 1
        wire.send(*(bytes([byte]) for byte in REQUEST))
        assert found(wire.answer()) == 1


def test_requests_that_are_sent_ahead_are_answered_in_order(service: Service) -> None:
    with Wire(service) as wire:
        other = HEAD.replace(b"/api/search/code", b"/nowhere") + b"Content-Length: 0\r\n\r\n"
        wire.send((REQUEST + other) * 20)
        for _ in range(20):
            assert found(wire.answer()) == 1
            assert wire.answer()[0] == 404


def test_a_body_may_come_in_chunks_of_its_own_making(service: Service) -> None:
    with Wire(service) as wire:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:5], BODY[5:]))
        wire.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", REQUEST)
        assert found(wire.answer()) == 1
        assert found(wire.answer()) == 1


def test_who_asks_whether_a_body_is_welcome_is_answered(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert wire.file.readline() == b"\r\n"
        wire.send(BODY)
        assert found(wire.answer()) == 1
        refused = HEAD.replace(b"/api/search/code", b"/api/remove")
        wire.send(refused + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (401, "close")  # the body might come or not
        assert wire.is_closed()


def test_a_body_that_nobody_wants_passes_by(service: Service) -> None:
    with Wire(service) as wire:
        unwanted = b"x" * 250_000
        wire.send(HEAD.replace(b"/api/search/code", b"/nowhere") + b"Content-Length: 250000\r\n\r\n" + unwanted, REQUEST)
        assert wire.answer()[0] == 404
        assert found(wire.answer()) == 1


@pytest.mark.parametrize("size", [300_001, 900_000])
def test_a_body_that_is_too_large_is_refused_and_the_answer_seen(service: Service, size: int) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        wire.send(b"x" * min(size, 700_000))  # twice as much as allowed, and some more
        status, headers, body = wire.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert b"at most 300,000 bytes" in body


def test_a_large_body_in_one_piece_is_no_large_header(service: Service) -> None:
    padded = BODY[:-1] + b" " * 200_000 + b"}"
    with Wire(service) as wire:
        wire.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(padded) + padded)
        assert found(wire.answer()) == 1


def test_a_head_has_no_body_and_the_old_version_closes(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert int(wire.answer(body=False)[1]["content-length"]) > 0
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert wire.is_closed()


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01\x02\x00\x01\n\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_what_is_no_http_is_refused(service: Service, nonsense: bytes) -> None:
    with Wire(service) as wire:
        wire.send(nonsense)
        status, headers, body = wire.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(body) == {"error": "The request is not HTTP."}
        assert wire.is_closed()


def test_nonsense_in_the_middle_of_a_body_ends_it(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{", b"}nonsense\r\n")
        assert wire.answer()[0] == 400
        assert wire.is_closed()


def test_another_protocol_is_not_spoken_but_the_request_answered(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert wire.answer()[0] == 200
        assert wire.is_closed()


class Sleeper:
    """An application that never answers."""

    limits = Limits(answer_seconds=0.3)

    async def respond(self, _: Request) -> Answer:
        await asyncio.sleep(60)
        raise AssertionError

    def finished(self, request: Request, answer: Answer, seconds: float) -> None:
        self.last = (request.path, answer.status, seconds)


def test_an_answer_that_takes_too_long_is_refused() -> None:
    app = Sleeper()

    async def ask() -> bytes:
        state, config = ServerState(), cast("Config", SimpleNamespace(app=SimpleNamespace(app=app)))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, state, None), "127.0.0.1", 0)
        clock = asyncio.create_task(watch(cast("set[Connection]", state.connections)))
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        clock.cancel()
        server.close()
        return head

    head = asyncio.run(ask())
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head
    assert app.last[:2] == ("/api/search/code", 503)
    assert 0.3 <= app.last[2] < 5
