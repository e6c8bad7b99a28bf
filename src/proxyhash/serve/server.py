"""The server behind `proxyhash serve`: uvicorn, on a socket of its own, until a signal comes."""

import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import uvicorn

from proxyhash.index.base import Index
from proxyhash.serve.app import create_app
from proxyhash.serve.asgi import settings_to_environment
from proxyhash.serve.logs import log_config
from proxyhash.serve.metrics import MULTIPROCESS_VARIABLE
from proxyhash.serve.settings import Settings
from proxyhash.utils.errors import InputError

_WORKER_START_SECONDS = 60

HttpParser = Literal["httptools", "h11"]


@dataclass(frozen=True)
class ServerConfig:
    """Options of the server, as uvicorn has them.

    Attributes
    ----------
    host, port
        Address to listen on; port 0 takes a free one.
    workers
        Number of processes that answer requests, each with a search process and decoders of its own.
    http
        HTTP parser of uvicorn: httptools is twice as fast as h11, which is written in Python.
    trusted_proxies
        Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are believed.
    root_path
        Path below which a proxy shows the service.
    ssl_certfile, ssl_keyfile
        Certificate and key for TLS.
    log_requests
        Log every request, not only failures.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    http: HttpParser = "httptools"
    trusted_proxies: tuple[str, ...] = ()
    root_path: str = ""
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    log_requests: bool = True

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can connect."""
        return is_loopback(self.host)


def serve(
    location: str, settings: Settings, config: ServerConfig, on_listening: Callable[[str], None] = lambda _: None
) -> None:
    """Serve an index until SIGINT or SIGTERM; `on_listening` gets the URL as soon as the port is bound.

    With one worker, connections wait from then on until the service is ready. With several workers, uvicorn binds the
    port again and connections are refused until then: closing a port that listens would reset those that wait.
    """
    with bind_socket(config.host, config.port, listen=config.workers == 1) as listener:
        Index.open(location).close()  # a wrong location is an error before anything is announced
        host, port = listener.getsockname()[:2]
        scheme = "http" if config.ssl_certfile is None else "https"
        on_listening(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{config.root_path}")
        if config.workers == 1:
            _run(location, settings, config, listener)
    if config.workers > 1:
        _run_workers(location, settings, replace(config, port=port))


def _run(location: str, settings: Settings, config: ServerConfig, listener: socket.socket) -> None:
    app = create_app(location, settings)
    app.state.service.start()  # an index that cannot be searched is one sentence, not a traceback of the server
    gc.collect()
    gc.freeze()  # objects that stay are not examined by each collection
    server = uvicorn.Server(uvicorn.Config(app, **uvicorn_options(settings, config)))
    with _ignored_signals():
        server.run(sockets=[listener])


def _run_workers(location: str, settings: Settings, config: ServerConfig) -> None:
    """Let uvicorn start several processes, which read their settings from environment variables."""
    with TemporaryDirectory(prefix="proxyhash-metrics-") as folder, _ignored_signals():
        os.environ.update({MULTIPROCESS_VARIABLE: folder, **settings_to_environment(location, settings)})
        options = {**uvicorn_options(settings, config), "workers": config.workers, "factory": True}
        uvicorn.run("proxyhash.serve.asgi:app", host=config.host, port=config.port, **options)


def uvicorn_options(settings: Settings, config: ServerConfig) -> dict[str, Any]:
    """Return the options of uvicorn."""
    limits = settings.limits
    return {
        "http": config.http,
        "ws": "none",
        "log_config": log_config(log_requests=config.log_requests),
        "access_log": False,  # it would contain query strings
        "server_header": False,
        "proxy_headers": bool(config.trusted_proxies),
        "forwarded_allow_ips": list(config.trusted_proxies),
        "root_path": config.root_path,
        "ssl_certfile": config.ssl_certfile,
        "ssl_keyfile": config.ssl_keyfile,
        "limit_concurrency": limits.max_requests,
        "timeout_keep_alive": round(limits.idle_seconds),
        "timeout_graceful_shutdown": round(limits.shutdown_seconds),
        "timeout_worker_healthcheck": _WORKER_START_SECONDS,
    }


@contextmanager
def bind_socket(host: str, port: int, *, listen: bool = True) -> Iterator[socket.socket]:
    """Give a socket that is bound to an address, and listens there or not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"There is no address {host}: {getattr(error, 'strerror', None) or error}.") from error
    with listener:
        try:
            if os.name == "posix":  # on Windows it would let other programs take the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            if listen:
                listener.listen(2048)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"Cannot listen at {host}, port {port}: {reason}; choose another with --port.") from error
        yield listener


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("photos.example.org")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _ignored_signals() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again after it has shut down, so that the process ends with exit code 0."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
