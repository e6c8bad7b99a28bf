"""What a client asks: its headers, and a body that may still be arriving."""

import asyncio
from collections.abc import Callable, Mapping

from proxyhash.serve.http import RefusalError

AHEAD = 65_536  # bytes of a body that are taken before anybody wants them


class Body:
    """What follows the headers. Nobody has to hold more of it than is wanted: the client is asked to wait."""

    def __init__(self, *, wait: Callable[[], None], go_on: Callable[[], None]) -> None:
        """`wait` and `go_on` stop the connection from reading and let it read again."""
        self._wait, self._go_on = wait, go_on
        self._parts: list[bytes] = []
        self._size, self.complete = 0, False
        self._most: int | None = None  # that is wanted; None: nobody has asked yet
        self._failure: RefusalError | None = None
        self._news: asyncio.Future[None] | None = None

    def feed(self, part: bytes) -> None:
        """Take what arrived; what is beyond all that anybody wants is dropped."""
        self._size += len(part)
        if self._most is None or self._size <= self._most:
            self._parts.append(part)
        if self._most is None and self._size > AHEAD:
            self._wait()
        self._tell()

    def end(self) -> None:
        """Note that all of it is here."""
        self.complete = True
        self._tell()

    def fail(self, refusal: RefusalError) -> None:
        """Give up on what is missing: the client is gone, or too slow."""
        if not self.complete and self._failure is None:
            self._failure = refusal
            self._tell()

    def drop(self) -> None:
        """Let the rest pass by: nobody wants it any more."""
        self._parts, self._most = [], -1

    async def read(self, announced: str | None, most: int) -> bytes:
        """Return all of it. Who sends too much is refused, and the connection closed.

        Of a body that is too large, as much again is read and dropped, so that an honest client gets to see the answer.
        """
        too_large = announced is not None and announced.isdecimal() and int(announced) > most
        self._most = -1 if too_large else most
        if not self.complete:
            self._go_on()
        while not self.complete and self._size <= 2 * most:
            if self._failure is not None:
                raise self._failure
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if too_large or self._size > most:
            self.drop()
            raise RefusalError(413, f"A request may have at most {most:,} bytes.", Connection="close")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Request:
    """One request of a connection; whether that then waits for the next is `lasting`."""

    __slots__ = ("begun", "body", "headers", "lasting", "method", "number", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Mapping[bytes, bytes],
        body: Body,
        *,
        begun: float,
        lasting: bool,
    ) -> None:
        self.method, self.path, self.query, self.headers, self.body = method, path, query, headers, body
        self.begun, self.lasting = begun, lasting
        self.number = 0  # which one it is of those that the service was sent

    @property
    def hesitates(self) -> bool:
        """Return whether the client asked if its body is welcome before it sends it."""
        return self.headers.get(b"expect", b"").lower() == b"100-continue"

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in small letters."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")
