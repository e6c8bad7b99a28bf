"""Pool of decoder processes."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import msgspec
from numpy.typing import NDArray

from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers.decoder import NAME, DecodeReply, DecodeRequest, Job, read_array, run_decoder
from proxyhash.serve.workers.process import WorkerProcess
from proxyhash.utils.errors import InputError

_ATTEMPTS = 2
_MAX_REPLY_BYTES = 64_000_000  # more than any job makes
_START_SECONDS = 60.0
_log = logging.getLogger(__name__)


class DecoderPool:
    """Decoder processes, each used by one thread at a time.

    Parameters
    ----------
    decoders
        Number of processes.
    decoder_bytes
        Memory that each may take for images.
    decoder_seconds
        Time that an image may take, before its decoder is killed.
    max_pixels
        Largest image that is decoded.
    """

    def __init__(self, *, decoders: int, decoder_bytes: int, decoder_seconds: float, max_pixels: int) -> None:
        self._threads = ThreadPoolExecutor(decoders, "decoder")
        self._decoders = [_Decoder(decoder_bytes, decoder_seconds, max_pixels) for _ in range(decoders)]
        self._idle: SimpleQueue[_Decoder] = SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)
        self._is_closed = False

    @property
    def restarts(self) -> int:
        """Return how many processes were replaced because they died or took too long."""
        return sum(decoder.restarts for decoder in self._decoders)

    @property
    def pids(self) -> list[int]:
        """Return the numbers of the running processes."""
        processes = [decoder.process for decoder in self._decoders]  # read once: other threads replace them
        return [process.pid for process in processes if process is not None]

    def start(self) -> None:
        """Start all processes, and wait until they are ready; without it, each starts with its first image."""
        for started in [self._threads.submit(self._prepare) for _ in self._decoders]:
            started.result()

    async def decode(self, job: Job, data: bytes) -> NDArray[Any]:
        """Return the array that a job makes of an image file.

        Raises
        ------
        InputError
            If the image cannot be decoded, or takes too much memory or time.
        BusyError
            If decoders died, or the pool is closed.
        """
        if self._is_closed:
            raise BusyError
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._decode, job, data)

    def close(self) -> None:
        """Finish the images that are being decoded, and end the processes."""
        self._is_closed = True
        self._threads.shutdown()
        for decoder in self._decoders:
            decoder.stop()

    def _prepare(self) -> None:
        """Start the process of the decoder that has been idle for longest."""
        decoder = self._idle.get()
        try:
            decoder.prepare()
        finally:
            self._idle.put(decoder)

    def _decode(self, job: Job, data: bytes) -> NDArray[Any]:
        decoder = self._idle.get()
        try:
            return decoder.decode(job, data)
        finally:
            self._idle.put(decoder)


class _Decoder:
    """One decoder process, which is replaced when it dies or takes too long."""

    def __init__(self, max_bytes: int, seconds: float, max_pixels: int) -> None:
        self._max_bytes, self._seconds, self._max_pixels = max_bytes, seconds, max_pixels
        self.process: WorkerProcess | None = None
        self.restarts = 0

    def prepare(self) -> WorkerProcess:
        """Return the process when it is ready; EOFError if it does not start."""
        process = self._start()
        try:
            process.wait_ready(_START_SECONDS)
        except TimeoutError:  # the image is not the cause
            raise EOFError("it did not start") from None
        return process

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def decode(self, job: Job, data: bytes) -> NDArray[Any]:
        """Return the array that a job makes; an image whose decoder dies is tried once more by a new one."""
        request = msgspec.msgpack.encode(DecodeRequest(job, memoryview(data)))
        for _ in range(_ATTEMPTS):
            try:
                return self._decode_once(job, request)
            except TimeoutError:
                self._replace("took too long")
                raise InputError(f"{NAME} takes longer than {self._seconds:g} seconds to decode.") from None
            except InputError:
                raise
            except (EOFError, OSError, ValueError) as error:  # it died, or its reply is not that of a decoder
                self._replace(f"died ({error})")
        raise BusyError

    def _decode_once(self, job: Job, request: bytes) -> NDArray[Any]:
        message = self.prepare().call(request, timeout=self._seconds, max_bytes=_MAX_REPLY_BYTES)
        reply = msgspec.msgpack.decode(message, type=DecodeReply)
        if reply.error:
            raise InputError(reply.error)
        return read_array(job, reply.data)

    def _start(self) -> WorkerProcess:
        if self.process is None:
            self.process = WorkerProcess("decoder", run_decoder, self._max_bytes, self._max_pixels)
        return self.process

    def _replace(self, reason: str) -> None:
        """End the process and start another one, which then is ready for the next image."""
        _log.warning("A decoder %s and is replaced.", reason)
        self.restarts += 1
        self.stop()
        try:
            self._start()
        except (EOFError, OSError) as error:
            _log.warning("A decoder cannot be started (%s).", error)
