"""The service's side of its decoder processes: each belongs to a thread, and is replaced when it dies or takes too long."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from proxyhash.serve import decoder
from proxyhash.serve.decoder import Job, Reply
from proxyhash.serve.http import RefusalError
from proxyhash.serve.settings import Limits

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_BYTES = 64_000_000  # of an answer: more than any job can ask for
_START_SECONDS = 60.0


class _Process:
    """One decoder."""

    def __init__(self, limits: Limits) -> None:
        context = _context()
        self._connection, theirs = context.Pipe()
        arguments = (theirs, limits.decoder_bytes, limits.pixels)
        self._process = context.Process(target=decoder.work, args=arguments, name="decoder", daemon=True)
        self._process.start()
        theirs.close()  # so that its death is the end of the connection
        self._started = False

    def do(self, job: Job, data: bytes, seconds: float) -> Array:
        """Return what a job makes of an image; TimeoutError if that takes too long, EOFError if the process dies."""
        self.wait()
        self._connection.send_bytes(msgspec.json.encode(job))
        self._connection.send_bytes(data)
        if not self._connection.poll(seconds):
            raise TimeoutError
        reply = msgspec.json.decode(self._connection.recv_bytes(_MOST_BYTES), type=Reply)
        content = self._connection.recv_bytes(_MOST_BYTES)
        if reply.error:
            raise RefusalError(422, reply.error)
        return np.frombuffer(content, reply.dtype).reshape(reply.shape)

    def wait(self) -> None:
        """Wait until it has started, which is not the fault of any image."""
        if not self._started:
            if not self._connection.poll(_START_SECONDS):
                raise EOFError
            self._connection.recv_bytes(len(decoder.READY))
            self._started = True

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
    context.set_forkserver_preload([decoder.__name__])
    return context


class Decoders:
    """Some decoder processes, behind as many threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.decoders, "decoding")
        self._own = threading.local()
        self._all: set[_Process] = set()
        self.replaced = 0

    def start(self) -> None:
        """Start the processes before anyone waits for them."""
        together = threading.Barrier(self._limits.decoders)
        for begun in [self._threads.submit(self._begin, together) for _ in range(self._limits.decoders)]:
            begun.result()

    async def do(self, job: Job, data: bytes) -> Array:
        """Return what a job makes of an image; whatever is wrong with it is refused with a sentence."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._do, job, data)

    def close(self) -> None:
        """Finish what is under way, and end the processes."""
        self._threads.shutdown()
        for process in self._all:
            process.stop()

    def _begin(self, together: threading.Barrier) -> None:
        together.wait()  # so that each thread takes one
        self._process().wait()

    def _process(self) -> _Process:
        process: _Process | None = getattr(self._own, "process", None)
        if process is None:
            process = self._started()
        return process

    def _started(self) -> _Process:
        self._own.process = process = _Process(self._limits)
        self._all.add(process)
        return process

    def _do(self, job: Job, data: bytes) -> Array:
        process = self._process()
        try:
            return process.do(job, data, self._limits.decoder_seconds)
        except TimeoutError:
            self._replace(process)
            seconds = self._limits.decoder_seconds
            raise RefusalError(422, f"{decoder.NAME} takes longer than {seconds:g} seconds to decode.") from None
        except (EOFError, OSError, ValueError, msgspec.DecodeError):  # it died, or said what no decoder says
            self._replace(process)
            raise RefusalError(422, f"{decoder.NAME} cannot be decoded: it made the decoder fail.") from None

    def _replace(self, process: _Process) -> None:
        self._all.discard(process)
        self.replaced += 1
        process.stop()
        self._started()  # so that it is there when the next image comes
