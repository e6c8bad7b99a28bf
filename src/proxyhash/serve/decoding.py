"""The service's side of its decoder processes: each belongs to a thread, and is replaced when it dies or takes too long."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from proxyhash.serve import decoder
from proxyhash.serve.decoder import DecodeReply, Job
from proxyhash.serve.http import RefusalError
from proxyhash.serve.processes import Worker
from proxyhash.serve.settings import Limits

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_BYTES = 64_000_000  # of an answer: more than any job can ask for
_START_SECONDS = 60.0


def _done(worker: Worker, job: Job, data: bytes, seconds: float) -> Array:
    """Return what a job makes of an image; TimeoutError if that takes too long, EOFError if the process dies."""
    worker.wait(_START_SECONDS)  # to begin is not the fault of any image
    worker.ask(msgspec.json.encode(job), data)
    reply = msgspec.json.decode(worker.answer(seconds, _MOST_BYTES), type=DecodeReply)
    content = worker.answer(seconds, _MOST_BYTES)
    if reply.error:
        raise RefusalError(422, reply.error)
    return np.frombuffer(content, reply.dtype).reshape(reply.shape)


class Decoders:
    """Some decoder processes, behind as many threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.decoders, "decoding")
        self._own = threading.local()
        self._all: set[Worker] = set()
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
        self._process().wait(_START_SECONDS)

    def _process(self) -> Worker:
        process: Worker | None = getattr(self._own, "process", None)
        if process is None:
            process = self._started()
        return process

    def _started(self) -> Worker:
        limits = self._limits
        self._own.process = process = Worker("decoder", decoder.work, limits.decoder_bytes, limits.pixels)
        self._all.add(process)
        return process

    def _do(self, job: Job, data: bytes) -> Array:
        process = self._process()
        try:
            return _done(process, job, data, self._limits.decoder_seconds)
        except TimeoutError:
            self._replace(process)
            seconds = self._limits.decoder_seconds
            raise RefusalError(422, f"{decoder.NAME} takes longer than {seconds:g} seconds to decode.") from None
        except (EOFError, OSError, ValueError, msgspec.DecodeError):  # it died, or said what no decoder says
            self._replace(process)
            raise RefusalError(422, f"{decoder.NAME} cannot be decoded: it made the decoder fail.") from None

    def _replace(self, process: Worker) -> None:
        self._all.discard(process)
        self.replaced += 1
        process.stop()
        self._started()  # so that it is there when the next image comes
