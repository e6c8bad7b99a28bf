"""A real Milvus server on this machine, from PyPI's package `milvus`, that can be killed and started again."""

import contextlib
import os
import signal
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

ETCD = 2379  # cannot be changed


class Server:
    """One standalone server: its data lie in a folder and survive it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._running: Any = None

    @property
    def address(self) -> str:
        return f"milvus://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it says that it is healthy."""
        milvus = pytest.importorskip("milvus", reason="the server comes with: pip install milvus==2.3.5")
        if not is_free(ETCD):
            pytest.skip(f"port {ETCD} is taken, where this server keeps its etcd: another Milvus runs here")
        self._running = milvus.MilvusServer(milvus.MilvusServerConfig())
        self._running.set_base_dir(str(self.folder))
        self._running.listen_port = self.port
        self._running.webservice_port = free_port()
        with contextlib.chdir(self.folder.parent):
            self._running.start()

    def kill(self) -> None:
        """End it as a loss of power would: nothing is finished."""
        process = self._running.server_proc
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self._running.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
