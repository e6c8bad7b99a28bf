"""`serve`: listen, answer until a signal comes, finish what is under way."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import uvicorn

from proxyhash.serve import metrics as counting
from proxyhash.serve.app import App
from proxyhash.serve.assets import page_routes
from proxyhash.serve.connections import Connection, watch
from proxyhash.serve.http import Answer
from proxyhash.serve.logs import Log, ServerHandler
from proxyhash.serve.openapi import document
from proxyhash.serve.routes import Route, api_routes
from proxyhash.serve.service import Service
from proxyhash.serve.settings import Settings
from proxyhash.utils.errors import InputError

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def serve(folder: Path, settings: Settings, listening: Callable[[str], None] = lambda _: None) -> None:
    """Serve an index until SIGINT or SIGTERM; `listening` is told the address once it takes requests."""
    log, metrics = Log(requests=settings.log_requests), counting.Metrics()
    with bound(settings.host, settings.port) as listener:
        service = Service(folder, settings, metrics)
        site = Site(App(service, table(service, metrics), settings, metrics, log), service)
        server = uvicorn.Server(_config(site, settings, log))
        site.failed = lambda: setattr(server, "should_exit", True)
        site.connections = cast("Iterable[Connection]", server.server_state.connections)
        host, port = listener.getsockname()[:2]
        listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        with _quiet_signals():
            server.run(sockets=[listener])
        service.close()
    log.write("stopped")
    if site.error is not None:
        raise site.error


def table(service: Service, metrics: counting.Metrics) -> Mapping[str, Mapping[str, Route]]:
    """Return all routes by path and method: the API, its document, what is counted, and the page."""
    api = api_routes(service)
    text = msgspec.json.encode(document(api))

    async def openapi(_: None, __: None) -> Answer:
        """Return the OpenAPI document."""
        return Answer(text)

    async def counted(_: None, __: None) -> Answer:
        """Return what was counted, for Prometheus."""
        return Answer(metrics.text().encode(), kind=counting.KIND)

    more = (Route("GET", "/openapi.json", openapi, "application/json"), Route("GET", "/metrics", counted, counting.KIND))
    return {route.path: {route.method: route} for route in (*api, *more, *page_routes())}


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that listens at an address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"There is no address {host}: {getattr(error, 'strerror', None) or error}.") from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"Cannot listen at {host}, port {port}: {reason}; choose another with --port.") from error
        yield listener


class Site:
    """The application with its beginning and end, as the server announces them."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self._service = app, service
        self.connections: Iterable[Connection] = ()
        self.error: BaseException | None = None
        self.failed: Callable[[], None] = lambda: None

    async def __call__(self, _: dict[str, Any], receive: Receive, send: Send) -> None:
        """Begin and end; requests do not come this way, see `Connection`."""
        tasks: list[asyncio.Task[None]] = []
        while True:
            stage = (await receive())["type"]
            if stage == "lifespan.startup":
                tasks = [asyncio.create_task(self._warm_up()), asyncio.create_task(watch(self.connections))]
            await send({"type": f"{stage}.complete"})
            if stage == "lifespan.shutdown":
                tasks[-1].cancel()
                return

    async def _warm_up(self) -> None:
        """Make ready while the first probes are answered; a service that cannot be made ready ends."""
        try:
            await asyncio.to_thread(self._service.warm_up)
        except Exception as error:
            self.error = error
            self.failed()


def _config(site: Site, settings: Settings, log: Log) -> uvicorn.Config:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").handlers = [ServerHandler(log)]
    limits = settings.limits
    return uvicorn.Config(
        site,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(limits.shutdown_seconds),
    )


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Do nothing about signals that the server raises again at its end: by then it has done what they ask for."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
