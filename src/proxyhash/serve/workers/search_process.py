"""The search process as the service uses it."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers.channel import Failure
from proxyhash.serve.workers.process import WorkerProcess
from proxyhash.serve.workers.searcher import SearchQuery, SearchReply, run_searcher
from proxyhash.utils.errors import DamagedError, InputError

State = Literal["starting", "ready", "restarting"]

_ATTEMPTS = 2
_MAX_REPLY_BYTES = 1_000_000_000
_RESTARTING = "The search process is being restarted; try again in a moment."
_log = logging.getLogger(__name__)


class SearchProcess:
    """A process that searches an index, and is replaced when it dies or hangs.

    Batches are searched one after another. The other methods may be called from any thread.

    Parameters
    ----------
    location
        Folder or address of the index.
    item_cache_size
        Number of items that the process keeps in memory after they were found.
    threshold
        Expected precision of the nearest item below which a query has no match.
    timeout_seconds
        Time that a batch may take before the process is replaced.
    start_seconds
        Time that the process may take to read the index.
    """

    def __init__(
        self,
        location: str | Path,
        *,
        item_cache_size: int,
        threshold: float,
        timeout_seconds: float = 20.0,
        start_seconds: float = 300.0,
    ) -> None:
        self._args = (str(location), item_cache_size, threshold)
        self._timeout_seconds, self._start_seconds = timeout_seconds, start_seconds
        self._decode = msgspec.msgpack.Decoder(list[SearchReply]).decode
        self._lock = threading.Lock()  # held during a batch
        self._process: WorkerProcess | None = None
        self._is_stopped = False
        self._unavailable_reason: str | None = None
        self.state: State = "starting"
        self.restarts = 0

    def start(self) -> None:
        """Start the process, and wait until it has read the index.

        Raises
        ------
        InputError
            If the index cannot be opened; a DamagedError if it is damaged.
        """
        with self._lock:
            self._is_stopped = False
            try:
                self._ready_process()
            except (EOFError, TimeoutError) as error:
                self._end_process()
                raise RuntimeError("The search process does not start; its output may say why.") from error

    def search(self, queries: Sequence[SearchQuery]) -> list[bytes | Exception]:
        """Return the response to each query as JSON, or its error.

        A batch during which the process dies is searched once more. One that takes too long is not: it may be the cause.
        An empty batch asks whether the process answers.
        """
        with self._lock:
            try:
                return self._search(queries)
            except InputError as error:  # the index cannot be opened again
                _log.warning("The search process cannot open the index: %s", error)
                failure = Failure("damaged" if isinstance(error, DamagedError) else "unavailable", str(error))
                return [failure.exception() for _ in queries]

    def stop(self) -> None:
        """End the process; a batch that is being searched is refused."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end_process()

    @property
    def pid(self) -> int | None:
        """Return the number of the process, None if there is none."""
        process = self._process
        return None if process is None else process.pid

    def _search(self, queries: Sequence[SearchQuery]) -> list[bytes | Exception]:
        message = msgspec.msgpack.encode(queries)
        for _ in range(_ATTEMPTS):
            if self._is_stopped:
                break
            try:
                process = self._ready_process()
                reply = process.call(message, timeout=self._timeout_seconds, max_bytes=_MAX_REPLY_BYTES)
                replies = self._decode(reply)
                self._log_unavailable(replies)
                return [one.response if one.failure is None else one.failure.exception() for one in replies]
            except TimeoutError:
                self._replace(f"did not answer within {self._timeout_seconds:g} seconds")
                break
            except (EOFError, OSError) as error:
                self._replace(f"died ({error})")
        return [BusyError(_RESTARTING) for _ in queries]

    def _log_unavailable(self, replies: Sequence[SearchReply]) -> None:
        """Log why the index cannot be read, once until it can."""
        failures = [reply.failure for reply in replies if reply.failure is not None]
        reason = next((failure.message for failure in failures if failure.kind == "unavailable"), None)
        if reason is not None and reason != self._unavailable_reason:
            _log.warning("The index cannot be read: %s", reason)
        if replies:
            self._unavailable_reason = reason

    def _ready_process(self) -> WorkerProcess:
        """Return the process, started if need be; an index that cannot be opened ends it."""
        if self._process is None:
            self._process = WorkerProcess("search", run_searcher, *self._args)
        try:
            self._process.wait_ready(self._start_seconds)
        except InputError:
            self._end_process()
            raise
        self.state = "ready"
        return self._process

    def _replace(self, reason: str) -> None:
        """End the process and start another one, which then reads the index while nobody waits for it."""
        self._end_process()
        if self._is_stopped:
            return
        _log.warning("The search process %s and is restarted.", reason)
        self.restarts += 1
        try:
            self._process = WorkerProcess("search", run_searcher, *self._args)
        except (EOFError, OSError) as error:
            _log.warning("The search process cannot be started (%s).", error)

    def _end_process(self) -> None:
        if self.state == "ready":
            self.state = "restarting"
        if self._process is not None:
            self._process.stop()
            self._process = None
