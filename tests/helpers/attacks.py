"""Clients that attack a service on this machine, and an honest client that asks beside them.

python tests/helpers/attacks.py NAME '{"port": 8000}' SECONDS     runs one attack and prints what it sent and got
"""

import asyncio
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import repeat
from typing import Any

MB = 1_000_000
PIECE = 64 * 1024
ATTACKER = "127.0.0.2"  # another address than the honest client's, as limits per address count it
FAILURES = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError)


@dataclass(frozen=True)
class Target:
    """Address of a service, and a code that it can search."""

    port: int
    host: str = "127.0.0.1"
    code: str = "00" * 8
    path: str = "/api/v1/search"

    def head(self, content_type: str, *more: str) -> bytes:
        """Return the first bytes of a request, up to its length."""
        lines = [f"POST {self.path} HTTP/1.1", "Host: localhost", f"Content-Type: {content_type}", *more]
        return "".join(f"{line}\r\n" for line in lines).encode()

    def request(self, content_type: str, body: bytes) -> bytes:
        """Return a whole request."""
        return self.head(content_type, f"Content-Length: {len(body)}") + b"\r\n" + body

    def search(self, k: int = 10) -> bytes:
        """Return a search by code."""
        return self.request("application/json", json.dumps({"code": self.code, "k": k}).encode())


class Pace:
    """A limit on the amount per second, over all connections of an attack."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._due = 0.0

    async def take(self, amount: float) -> None:
        """Wait until this amount more is due."""
        now = time.monotonic()
        self._due = max(self._due, now - 0.1) + amount / self.rate
        await asyncio.sleep(max(0.0, self._due - now))


def pieces_of(data: bytes | memoryview) -> Iterator[memoryview]:
    """Cut bytes into pieces of 64 kB without a copy."""
    view = memoryview(data)
    return (view[first : first + PIECE] for first in range(0, len(data), PIECE))


class Connection:
    """One connection of an attacker."""

    def __init__(self, target: Target, pace: Pace, tally: Counter[str]) -> None:
        self.target, self.pace, self.tally = target, pace, tally
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self, receive_buffer: int | None = None) -> "Connection":
        """Connect, with a small receive buffer if the attack is not to read much."""
        plain = socket.socket()
        plain.setblocking(False)
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.bind((ATTACKER, 0))
        try:
            await asyncio.get_running_loop().sock_connect(plain, (self.target.host, self.target.port))
        except OSError:
            plain.close()
            raise
        self.reader, self.writer = await asyncio.open_connection(sock=plain)
        return self

    async def send(self, data: bytes | memoryview) -> None:
        """Send at the pace of the attack."""
        for piece in pieces_of(data):
            await self.pace.take(len(piece))
            self.writer.write(piece)
            await self.writer.drain()
            self.tally["sent"] += len(piece)

    async def status(self) -> int:
        """Read the head of a response and count its status."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        self.tally[str(status)] += 1
        return status

    async def upload(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Send pieces until they end or the response comes."""
        answer = asyncio.create_task(self.status())
        answer.add_done_callback(lambda task: task.cancelled() or task.exception())  # an error is known to the sender too
        try:
            for piece in pieces:
                if answer.done():
                    break
                await self.send(piece)
            await answer
        finally:
            answer.cancel()

    async def discard(self) -> None:
        """Read and forget everything."""
        while data := await self.reader.read(PIECE):
            self.tally["received"] += len(data)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        plain = self.writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    def close(self) -> None:
        """Close the connection, whatever is still to be sent."""
        if hasattr(self, "writer"):
            self.writer.transport.abort()


Session = Callable[[Connection, int], Awaitable[None]]


@dataclass(frozen=True)
class Attack:
    """What one connection does, and how many of them do it at what rate; a connection that ends is opened again."""

    what: str
    session: Session
    connections: int
    bytes_per_second: float = 20 * MB
    openings_per_second: float = 100.0

    @property
    def rate(self) -> str:
        """Describe the rate."""
        connections = f"{self.connections:,} connection{'s' if self.connections > 1 else ''}"
        limits = f"{self.openings_per_second:g} new ones and {self.bytes_per_second / MB:g} MB a second"
        return f"{connections}, at most {limits}"


async def pipeline_unread(connection: Connection, _: int) -> None:
    """Send searches without end, and read no response."""
    await connection.open(receive_buffer=4096)
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await send_forever(connection, connection.target.search() * 300)


async def pipeline_read(connection: Connection, _: int) -> None:
    """Send searches without end, and read the responses."""
    await connection.open()
    await while_reading(connection, send_forever(connection, connection.target.search() * 300))


async def send_forever(connection: Connection, data: bytes) -> None:
    """Send the same bytes again and again."""
    for piece in repeat(data):
        await connection.send(piece)


async def while_reading(connection: Connection, sending: Any) -> None:
    """Send and read until the service closes the connection."""
    tasks = [asyncio.ensure_future(sending), asyncio.create_task(connection.discard())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def trailers(connection: Connection, _: int) -> None:
    """Send a chunked body whose trailers never end."""
    await connection.open()
    await connection.send(connection.target.head("application/json", "Transfer-Encoding: chunked") + b"\r\n0\r\n")
    await connection.upload(repeat(b"X-Trailer: 0123456789\r\n" * 3_000))


async def endless_headers(connection: Connection, number: int) -> None:
    """Send many headers, or one that never ends."""
    await connection.open()
    await connection.send(connection.target.head("application/json", *(["X-Long: "] if number % 2 else [])).rstrip())
    await connection.upload(repeat(b"0123456789" * 6_000 if number % 2 else b"\r\nX-Header: 0123456789" * 3_000))


@cache  # a body of many megabytes is made once, not for each connection
def large_search(target: Target) -> bytes:
    """Return a search by code with 19 MB of JSON."""
    return target.request("application/json", b'{"code": "' + b"0" * (19 * MB) + b'"}')


async def large_json(connection: Connection, _: int) -> None:
    """Send a search by code with 19 MB of JSON."""
    await connection.open()
    await connection.upload(pieces_of(large_search(connection.target)))


async def deep_json(connection: Connection, number: int) -> None:
    """Send JSON that is nested 30,000 levels deep."""
    await connection.open()
    nested = b"[" * 30_000 + b"]" * 30_000
    body = [nested, b'{"labels": ' + nested + b"}", b'{"a":' * 10_000 + b"1" + b"}" * 10_000][number % 3]
    await connection.upload(pieces_of(connection.target.request("application/json", body)))


async def tiny_chunks(connection: Connection, _: int) -> None:
    """Send an image of 20 MB in chunks of 2 bytes."""
    await connection.open()
    head = connection.target.head("application/octet-stream", "Transfer-Encoding: chunked") + b"\r\n"
    chunks = repeat(b"2\r\nxx\r\n" * 10_000, 1_000)
    await connection.upload(iter([head, *chunks, b"0\r\n\r\n"]))


async def aborted_uploads(connection: Connection, number: int) -> None:
    """Send 5 of 10 MB of an image, then close with RST or FIN."""
    await connection.open()
    head = connection.target.head("image/jpeg", f"Content-Length: {10 * MB}") + b"\r\n"
    await connection.send(head + b"x" * (5 * MB))
    if number % 2:
        connection.reset()
    connection.writer.close()
    connection.tally["aborted"] += 1


async def oversize(connection: Connection, number: int) -> None:
    """Send an image of 100 MB, with its length or in chunks."""
    await connection.open()
    if number % 2:
        head, piece = "Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (PIECE, b"x" * PIECE)
    else:
        head, piece = f"Content-Length: {100 * MB}", b"x" * PIECE
    await connection.send(connection.target.head("image/jpeg", head) + b"\r\n")
    await connection.upload(repeat(piece, 100 * MB // PIECE))


@cache
def bad_form(target: Target, kind: int) -> bytes:
    """Return a form with very many parts, with a huge part header, or without an end."""
    first = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n'
    many = b'--x\r\nContent-Disposition: form-data; name="labels"\r\n\r\na\r\n' * 300_000 + b"--x--\r\n"
    huge = first + b"X-Long: " + b"y" * (15 * MB) + b"\r\n\r\nz\r\n--x--\r\n"
    endless = first + b"\r\n" + b"\r\n--y" * (3 * MB)
    return target.request("multipart/form-data; boundary=x", (many, huge, endless)[kind])


async def multipart(connection: Connection, number: int) -> None:
    """Send forms with very many parts, a huge part header, or no end."""
    await connection.open()
    await connection.upload(pieces_of(bad_form(connection.target, number % 3)))


async def idle(connection: Connection, _: int) -> None:
    """Connect and do nothing."""
    await connection.open()
    await connection.discard()


async def slow_request(connection: Connection, number: int) -> None:
    """Send headers or a body at one byte a second."""
    await connection.open()
    search = connection.target.search()
    begun = search.index(b"\r\n\r\n") + 4 if number % 2 else 0
    await connection.send(search[:begun])
    await while_reading(connection, drip(connection, search[begun:]))


async def drip(connection: Connection, data: bytes) -> None:
    """Send one byte a second."""
    for byte in data:
        await connection.send(bytes([byte]))
        await asyncio.sleep(1)


async def slow_reader(connection: Connection, _: int) -> None:
    """Ask for as many matches as possible, and read one byte a second."""
    await connection.open(receive_buffer=2048)
    await connection.send(connection.target.search(k=1000))
    connection.reader._limit = 1  # type: ignore[attr-defined]  # the stream reads no further than its limit
    while await connection.reader.read(1):
        await asyncio.sleep(1)


async def no_attack(_connection: Connection, _: int) -> None:
    """Do nothing."""
    await asyncio.sleep(3600)


ATTACKS = {
    "none": Attack("nothing, for comparison", no_attack, 1),
    "pipeline-unread": Attack("pipelined searches, responses not read", pipeline_unread, 20),
    "pipeline-read": Attack("pipelined searches, responses read", pipeline_read, 20),
    "trailers": Attack("endless trailers", trailers, 10),
    "headers": Attack("endless headers", endless_headers, 10),
    "large-json": Attack("JSON bodies of 19 MB", large_json, 100, 400 * MB),
    "deep-json": Attack("JSON nested 30,000 levels deep", deep_json, 20),
    "tiny-chunks": Attack("20 MB in chunks of 2 bytes", tiny_chunks, 4),
    "aborted-uploads": Attack("uploads aborted half way", aborted_uploads, 20, 100 * MB, 20.0),
    "oversize": Attack("bodies of 100 MB", oversize, 20, 400 * MB),
    "multipart": Attack("multipart forms: many parts, huge part header, no end", multipart, 6, 100 * MB),
    "idle": Attack("idle connections", idle, 2000, openings_per_second=1000.0),
    "slow-requests": Attack("one byte a second", slow_request, 500, openings_per_second=500.0),
    "slow-readers": Attack("responses read at one byte a second", slow_reader, 200, openings_per_second=200.0),
}


async def run_attack(attack: Attack, target: Target, seconds: float) -> Counter[str]:
    """Attack for some seconds; return what was sent and answered."""
    tally, pace, openings = Counter[str](), Pace(attack.bytes_per_second), Pace(attack.openings_per_second)

    async def attacker(number: int) -> None:
        while True:
            await openings.take(1)
            connection = Connection(target, pace, tally)
            try:
                await attack.session(connection, number)
                tally["ended"] += 1
            except FAILURES as error:
                tally[type(error).__name__] += 1
            finally:
                connection.close()

    tasks = [asyncio.create_task(attacker(number)) for number in range(attack.connections)]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally


@dataclass
class Answers:
    """What an honest client got: seconds of each answer, and errors by their names."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def percentile(self, share: float) -> float:
        """Return a percentile of the seconds, infinite if there was no answer."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


class HonestClient:
    """A client that searches at a steady rate, in turn on a new connection and on one that was kept."""

    def __init__(self, target: Target, *, every: float = 0.05, patience: float = 10.0) -> None:
        self.target, self.every, self.patience = target, every, patience
        self.answers = Answers()
        self._kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self, seconds: float) -> Answers:
        """Send searches for some seconds, whether earlier ones were answered or not."""
        begun, tasks = time.monotonic(), list[asyncio.Task[None]]()
        while (late := time.monotonic() - begun) < seconds:
            tasks.append(asyncio.create_task(self._search(is_new=len(tasks) % 2 == 0)))
            await asyncio.sleep(max(0.0, len(tasks) * self.every - late))
        await asyncio.gather(*tasks)
        for _, writer in self._kept:
            writer.close()
        return self.answers

    async def _search(self, *, is_new: bool) -> None:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(self.patience):
                status = await self._ask(is_new=is_new)
        except (TimeoutError, *FAILURES) as error:
            self.answers.errors[type(error).__name__] += 1
            return
        if status == 200:
            self.answers.seconds.append(time.perf_counter() - begun)
        else:
            self.answers.errors[str(status)] += 1

    async def _ask(self, *, is_new: bool) -> int:
        self._kept = [(reader, writer) for reader, writer in self._kept if not reader.at_eof()]  # closed while it was idle
        if is_new or not self._kept:
            reader, writer = await asyncio.open_connection(self.target.host, self.target.port)
        else:
            reader, writer = self._kept.pop()
        try:
            status = await exchange(reader, writer, self.target.search())
        except BaseException:
            writer.close()
            raise
        if is_new:
            writer.close()
        else:
            self._kept.append((reader, writer))
        return status


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request, read its response and return the status."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head.split(b" ", 2)[1])


async def attack_beside(name: str, target: Target, seconds: float) -> Counter[str]:
    """Run an attack in its own process, so that it does not slow the honest client down."""
    command = [sys.executable, __file__, name, json.dumps(asdict(target)), str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return Counter(json.loads(output))


if __name__ == "__main__":
    sent = asyncio.run(run_attack(ATTACKS[sys.argv[1]], Target(**json.loads(sys.argv[2])), float(sys.argv[3])))
    print(json.dumps(sent))
