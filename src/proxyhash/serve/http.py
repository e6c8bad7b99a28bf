"""Requests and answers, apart from what they are about."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxyhash.serve.messages import ErrorAnswer

JSON = "application/json"

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Answer:
    """What goes back to a client."""

    body: bytes
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusalError(Exception):
    """A request that is not answered as it wished; the client reads the sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> Answer:
        """Return it as JSON."""
        return Answer(msgspec.json.encode(ErrorAnswer(str(self))), self.status, JSON, self.headers)


def busy(sentence: str = "The service has more to do than it can keep up with; ask again in a moment.") -> RefusalError:
    """Return the refusal of a request that may be sent again."""
    return RefusalError(503, sentence, Retry_After="1")


async def read_body(receive: Receive, announced: str | None, most: int, seconds: float) -> bytes:
    """Return the body of a request. Who sends too much, or too slowly, is refused and the connection closed.

    Of a body that is too large, as much again is read and dropped, so that an honest client gets to see the answer.
    """
    too_large = announced is not None and announced.isdecimal() and int(announced) > most
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(seconds):
            while more and size <= 2 * most:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusalError(400, "The request ended before its body did.", Connection="close")
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                too_large |= size > most
                if not too_large:
                    parts.append(part)
    except TimeoutError:
        raise RefusalError(408, f"The request did not arrive within {seconds:g} seconds.", Connection="close") from None
    if too_large:
        raise RefusalError(413, f"A request may have at most {most:,} bytes.", Connection="close")
    return b"".join(parts)
