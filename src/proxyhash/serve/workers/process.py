"""Worker processes that are started, asked and ended by the service."""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, util
from types import ModuleType
from typing import Any

import msgspec

from proxyhash.serve.workers.channel import Channel, Failure

_PRELOADED = "proxyhash.serve.workers.preload"
_MAX_READY_BYTES = 100_000
_START_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds between attempts to start a process
_JOIN_SECONDS = 5.0
_UNKNOWN_EXIT = 255  # the exit code that multiprocessing reports when the fork server died before the worker
_start_lock = threading.Lock()


class WorkerProcess:
    """A process that runs `target(channel, *args)`.

    The target first calls `report_ready`, then answers each message with one message, until the channel ends with an
    EOFError. Only bytes are exchanged: what a worker sends is never unpickled.

    Parameters
    ----------
    name
        Name of the process.
    target
        Function of a module that the process can import.
    args
        Further arguments of the target.

    Raises
    ------
    OSError
        If the system cannot start a process.
    """

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self._process, self._channel = _start(name, target, args)
        self._is_ready = False
        # When the service ends, it runs before multiprocessing sends SIGTERM, which workers ignore, and waits for their end.
        self._end = util.Finalize(self, _end, (self._process, self._channel), exitpriority=1)

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return int(self._process.pid)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the process is ready; raise its exception if it cannot start.

        Raises
        ------
        TimeoutError
            If it takes longer than `timeout` seconds.
        EOFError
            If it died.
        """
        if self._is_ready:
            return
        message = self._channel.receive(timeout, _MAX_READY_BYTES)
        if message:
            raise msgspec.msgpack.decode(message, type=Failure).exception()
        self._is_ready = True

    def call(self, message: bytes, *, timeout: float | None = None, max_bytes: int | None = None) -> bytearray:
        """Send a message, and return the answer of at most `max_bytes`. Both together take at most `timeout` seconds.

        Raises
        ------
        TimeoutError
            If it takes longer; the process cannot be used any more.
        EOFError
            If the process died, or its answer is too long.
        """
        start = time.monotonic()
        self._channel.send(message, timeout)
        return self._channel.receive(None if timeout is None else timeout - (time.monotonic() - start), max_bytes)

    def kill(self) -> None:
        """End the process from any thread; a call under way raises an EOFError."""
        _kill(self._process)

    def stop(self) -> None:
        """End the process, and close the channel; it also happens when nobody refers to this object any more."""
        self._end()


def report_ready(channel: Channel, failure: Failure | None = None) -> None:
    """Tell the service that this worker process is ready, or why it cannot start."""
    channel.send(b"" if failure is None else msgspec.msgpack.encode(failure))


def _start(name: str, target: Callable[..., None], args: tuple[Any, ...]) -> tuple[Any, Channel]:
    """Start a process, again if the fork server ends at that moment, for example by a SIGTERM to the process group."""
    for pause in _START_PAUSES:
        with suppress(EOFError, ConnectionError, FileNotFoundError):
            return _start_once(name, target, args)
        time.sleep(pause)
    return _start_once(name, target, args)


def _start_once(name: str, target: Callable[..., None], args: tuple[Any, ...]) -> tuple[Any, Channel]:
    ours, theirs = socket.socketpair()
    process = _context().Process(target=_run, args=(target, theirs, *args), name=name, daemon=True)
    try:
        with theirs, _start_lock, _hidden_main_module(), _no_daemon():
            process.start()
    except BaseException:
        ours.close()
        raise
    return process, Channel(ours)


def _kill(process: Any) -> None:
    process.kill()
    if process.exitcode == _UNKNOWN_EXIT:
        with suppress(ProcessLookupError):
            os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has no SIGKILL


def _end(process: Any, channel: Channel) -> None:
    _kill(process)
    process.join(_JOIN_SECONDS)
    channel.close()


def start_fork_server() -> None:
    """Start the fork server before it is needed: it imports the workers' modules while the service imports others."""
    if _context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()


def _context() -> Any:
    """Return the start method: a fork server that has imported the decoder, or a new interpreter."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


@contextmanager
def _hidden_main_module() -> Iterator[None]:
    """Keep a new process from importing the main module, which is the user's program: it could start another service."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _no_daemon() -> Iterator[None]:
    """Let a daemonic process start others: several servers run applications in such processes.

    Daemonic processes must not have children because these would be left behind; a worker ends with its parent.
    """
    process = multiprocessing.current_process()
    is_daemon = process.daemon
    if is_daemon:
        process.daemon = False
    try:
        yield
    finally:
        if is_daemon:
            process.daemon = True


def _run(target: Callable[..., None], end: socket.socket, *args: Any) -> None:
    """Run a worker in its process, until the service closes the channel or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group; the service ends its workers
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError):
        target(Channel(end), *args)


def _exit_with_parent() -> None:
    """End this process when the service ends, even in the middle of its work."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
