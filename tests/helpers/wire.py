"""A client that sees and sends single bytes."""

import socket
from typing import NamedTuple, Protocol

import httpx

BODY = b'{"code": "0000", "k": 1}'
HEAD = b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


class Server(Protocol):
    """What listens at a URL."""

    @property
    def url(self) -> str: ...


class WireResponse(NamedTuple):
    """A response as it was received."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One TCP connection to a service."""

    def __init__(self, server: Server) -> None:
        url = httpx.URL(server.url)
        self.socket = socket.create_connection((url.host, url.port or 0), timeout=60)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def response(self, *, has_body: bool = True) -> WireResponse:
        line = self.file.readline()
        assert line.startswith(b"HTTP/1."), line
        headers = {}
        while header := self.file.readline().strip():
            name, _, value = header.decode("latin-1").partition(": ")
            headers[name.lower()] = value
        if has_body and "content-length" not in headers:
            return WireResponse(int(line.split()[1]), headers, self.file.read())  # the connection ends after it
        body = self.file.read(int(headers["content-length"])) if has_body else b""
        return WireResponse(int(line.split()[1]), headers, body)

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True
