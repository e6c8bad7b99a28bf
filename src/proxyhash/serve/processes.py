"""A process of the service's own: told what to do over a pipe, in bytes, never in Python objects."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import msgspec

_PRELOADED = "proxyhash.serve.decoder"
_MOST_FIRST_BYTES = 10_000  # a sentence


class Ready(msgspec.Struct, frozen=True):
    """The first that a process says: that it has begun, or why it cannot."""

    error: str = ""


class Worker:
    """One process, which runs `work(connection, *arguments)` until the connection ends."""

    def __init__(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        context = _context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *arguments), name=name, daemon=True)
        self._process.start()
        theirs.close()  # so that its death is the end of the connection
        self._ready: Ready | None = None

    @property
    def number(self) -> int:
        """Return what the system knows it by."""
        return int(self._process.pid)

    def wait(self, seconds: float | None = None) -> Ready:
        """Wait until it has begun; EOFError if it dies, or takes longer than that."""
        if self._ready is None:
            if not self._connection.poll(seconds):
                raise EOFError
            self._ready = msgspec.json.decode(self._connection.recv_bytes(_MOST_FIRST_BYTES), type=Ready)
        return self._ready

    def ask(self, *parts: bytes) -> None:
        """Send what is to be done; EOFError or OSError if it has died."""
        for part in parts:
            self._connection.send_bytes(part)

    def answer(self, seconds: float | None = None, most: int | None = None) -> bytes:
        """Return what it sends, of at most so many bytes; TimeoutError if that takes too long, EOFError if it dies."""
        if not self._connection.poll(seconds):
            raise TimeoutError
        answer: bytes = self._connection.recv_bytes(most)
        return answer

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.join()


def _context() -> Any:
    """Return how processes are started: forked off one that has read the decoders already, where that is possible."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context
