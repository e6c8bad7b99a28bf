"""Connections that may not be held open for nothing: uvicorn's, with a limit on the time and the size of headers."""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """Is closed if the headers of a request do not arrive in the time that it may be silent, or are too large."""

    _deadline: TimerHandle | None = None
    _in_headers = True
    _received = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.timeout_keep_alive, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Watch headers that come in pieces."""
        super().data_received(data)
        if not self._in_headers:
            self._received = 0
            self._met_deadline()
            return
        self._received += len(data)
        if self._received > MOST_HEADER_BYTES:
            self.transport.abort()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def on_message_begin(self) -> None:
        """Note that headers follow."""
        self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that they are there."""
        self._in_headers = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._met_deadline()
        super().connection_lost(exc)

    def _met_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
