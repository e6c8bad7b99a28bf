"""A connection: requests in, answers out, one after the other; nobody may hold it open for nothing.

It takes the place of uvicorn's own protocol, whose general interface between server and application costs more than the
search that is asked for: here a request is one object, and an answer one write.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from proxyhash.serve.app import App
from proxyhash.serve.http import Answer, RefusalError, busy
from proxyhash.serve.requests import Body, Request

MOST_HEADER_BYTES = 65_536
TICK = 0.25  # seconds between two looks at who takes too long
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


async def watch(connections: Iterable["Connection"]) -> None:
    """Look at all connections, for ever: one clock for all of them costs less than one for each."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(TICK)
        now = loop.time()
        for connection in list(connections):
            connection.check(now)


class Connection(asyncio.Protocol):
    """Reads requests, lets the application answer them in order, and writes the answers."""

    transport: asyncio.Transport

    def __init__(self, config: Config, server_state: ServerState, app_state: object, _loop: Any = None) -> None:  # noqa: ARG002
        """Begin; uvicorn's server gives its settings, of which the application knows the limits."""
        self._app: App = config.app.app  # type: ignore[union-attr]  # a `Site`
        self._limits, self._state = self._app.limits, server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers, self._header_bytes = b"", dict[bytes, bytes](), 0
        self._arriving: Request | None = None  # whose body is being read
        self._waiting: deque[Request] = deque()  # that were sent before the one before them was answered
        self._current: Request | None = None  # that is being answered
        self._task: asyncio.Task[None] | None = None
        self._deadline = self._loop.time() + self._limits.idle_seconds
        self._late = self._closing = False

    # What the network says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self.transport = cast("asyncio.Transport", transport)
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell whoever waits for the rest of a body that there is none."""
        self._state.connections.discard(self)
        self._closing = True
        for request in (self._arriving, self._current):
            if request is not None:
                request.body.fail(RefusalError(400, "The request ended before its body did.", Connection="close"))

    def data_received(self, data: bytes) -> None:
        """Read on; requests whose headers are complete are answered once all that has come was read."""
        self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # what follows is of another protocol; the request itself is answered
        except httptools.HttpParserError:
            self._refuse_all()
            return
        if self._arriving is None and self._header_bytes > MOST_HEADER_BYTES:
            self.transport.abort()
            return
        self._next()

    # What the parser says.

    def on_message_begin(self) -> None:
        """Note that headers follow; they have their time."""
        self._url, self._headers = b"", {}
        if self._current is None:
            self._deadline = self._loop.time() + self._limits.idle_seconds

    def on_url(self, url: bytes) -> None:
        """Collect the address, which may come in pieces."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Make a request of what was read; it waits for its turn."""
        address = httptools.parse_url(self._url)
        path = (address.path or b"").decode("ascii")
        body = Body(wait=self._pause, go_on=self._continue)
        self._arriving = Request(
            self._parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            address.query or b"",
            self._headers,
            body,
            begun=self._loop.time(),
            lasting=self._parser.should_keep_alive(),
        )
        self._waiting.append(self._arriving)

    def on_body(self, part: bytes) -> None:
        """Hand on a piece of a body."""
        if self._arriving is not None:
            self._arriving.body.feed(part)

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        self._header_bytes = 0
        if self._arriving is not None:
            self._arriving.body.end()
            if self._arriving is self._current:
                self._deadline = self._arriving.begun + self._limits.answer_seconds
            elif self._current is None:  # what nobody wanted has passed by
                self._deadline = self._loop.time() + self._limits.idle_seconds
            self._arriving = None

    # What the server says.

    def shutdown(self) -> None:
        """End, after what is under way."""
        self._closing = True
        if self._current is None:
            self.transport.close()

    def check(self, now: float) -> None:
        """Cut off a client that is silent for too long, and an answer that does not come."""
        if now < self._deadline:
            return
        self._deadline = now + self._limits.answer_seconds
        if self._current is None:
            self.transport.abort()
        elif not self._current.body.complete:
            seconds = self._limits.body_seconds
            sentence = f"The request did not arrive within {seconds:g} seconds."
            self._current.body.fail(RefusalError(408, sentence, Connection="close"))
        elif self._task is not None:
            self._late = True
            self._task.cancel()

    # Answering.

    def _next(self) -> None:
        """Begin with the next request, if none is being answered."""
        if self._current is None and self._waiting:
            self._current = request = self._waiting.popleft()
            seconds = self._limits.answer_seconds if request.body.complete else self._limits.body_seconds
            self._deadline = request.begun + seconds
            self._task = self._loop.create_task(self._answer(request))
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._state.tasks.discard)
        elif self._waiting:
            self.transport.pause_reading()  # who sends ahead waits for the answers

    async def _answer(self, request: Request) -> None:
        try:
            if len(self._state.connections) > self._limits.connections:
                answer = busy().answer()
            else:
                answer = await self._app.respond(request)
        except asyncio.CancelledError:
            if not self._late:  # the service ends
                self.transport.abort()
                raise
            answer = busy(f"The answer took longer than {self._limits.answer_seconds:g} seconds.").answer()
        self._app.finished(request, answer, self._loop.time() - request.begun)
        self._send(request, answer)

    def _send(self, request: Request, answer: Answer) -> None:
        """Write an answer, and go on with the next request or close."""
        self._current, self._task, self._late = None, None, False
        if self.transport.is_closing():
            return
        unsure = request.hesitates and not request.body.complete  # whether the next that comes is its body
        lasting = request.lasting and not (self._closing or unsure or "Connection" in answer.headers)
        self.transport.write(_bytes(request.method, answer, self._state.default_headers, lasting=lasting))
        if not lasting:
            self.transport.close()
        limits = self._limits
        if self.transport.get_write_buffer_size():  # a client that does not read what it asked for
            self._deadline = request.begun + limits.answer_seconds
        else:
            self._deadline = self._loop.time() + limits.idle_seconds
        if lasting and not request.body.complete:
            request.body.drop()
            self._deadline = request.begun + limits.body_seconds
            self.transport.resume_reading()
        elif lasting and self._waiting:
            self.transport.resume_reading()
            self._next()

    def _refuse_all(self) -> None:
        """Answer what is no HTTP; there is no telling where the next request would begin."""
        self._closing = True
        refusal = RefusalError(400, "The request is not HTTP.", Connection="close")
        if self._arriving is not None:
            self._arriving.body.fail(refusal)
        if self._current is None:
            answer = refusal.answer()
            self.transport.write(_bytes("GET", answer, self._state.default_headers, lasting=False))
            self.transport.close()

    def _pause(self) -> None:
        self.transport.pause_reading()

    def _continue(self) -> None:
        """Let the client send its body: some ask whether it is welcome."""
        if self.transport.is_closing():
            return
        if self._current is not None and self._current.hesitates:
            self.transport.write(_CONTINUE)
        self.transport.resume_reading()


GUARDS = (
    b"content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cross-origin-resource-policy: same-origin\r\n"
    b"cross-origin-opener-policy: same-origin\r\n"
)
"""What every answer tells a browser: that nothing of ours may run, or be shown, anywhere else."""


def _bytes(method: str, answer: Answer, always: list[tuple[bytes, bytes]], *, lasting: bool) -> bytes:
    """Return an answer as it goes over the wire."""
    parts = [
        _STATUS[answer.status],
        b"".join(b"%s: %s\r\n" % pair for pair in always),
        GUARDS,
        b"content-type: %s\r\ncontent-length: %d\r\n" % (answer.kind.encode(), len(answer.body)),
        *(f"{name.lower()}: {value}\r\n".encode("latin-1") for name, value in answer.headers.items()),
    ]
    if not lasting and "Connection" not in answer.headers:
        parts.append(b"connection: close\r\n")
    return b"".join([*parts, b"\r\n", b"" if method == "HEAD" else answer.body])
