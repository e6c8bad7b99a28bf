"""ASGI middleware: the access log and metrics of all requests, security headers, and header checks."""

import logging
import time
from itertools import count
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxyhash.serve.logs import ACCESS_LOGGER
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.problems import error_response, problem_response
from proxyhash.serve.security import SECURITY_HEADERS, is_allowed_host

_PROBES = ("/health", "/ready")  # of orchestrators, which use any name
_SINGLE_HEADERS = {
    name.lower().encode(): name for name in ("Host", "Authorization", "Content-Type", "Content-Length", "Transfer-Encoding")
}

_CLOSE = {"Connection": "close"}

_logger = logging.getLogger(ACCESS_LOGGER)


class ObserveMiddleware:
    """Counts and logs requests, adds security headers, and answers unexpected exceptions with 500.

    The log has neither headers nor bodies nor query strings, so that no token and no query reaches it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, location: str) -> None:
        self.app, self._metrics, self._location, self._numbers = app, metrics, location, count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, and note its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = _Response(send)
        start = time.perf_counter()
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # the server leaves out the body
        try:
            await self.app(inner, receive, response.send)
        except Exception as error:
            if response.status:
                raise
            await error_response(error, self._location)(scope, receive, response.send)
        seconds = time.perf_counter() - start
        route = getattr(inner.get("route"), "path", "unknown")
        self._metrics.observe_request(route, scope["method"], response.status, seconds)
        if _logger.isEnabledFor(logging.INFO):
            _log_request(next(self._numbers), scope, response, seconds)


class _Response:
    """A `send` that notes the status and the size, and adds the security headers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = self.size = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
        else:
            self.size += len(message.get("body", b""))
        await self._send(message)


def _log_request(number: int, scope: Scope, response: _Response, seconds: float) -> None:
    fields: dict[str, Any] = {
        "id": number,
        "client": scope["client"][0] if scope.get("client") else None,
        "method": scope["method"],
        "path": scope["path"],
        "status": response.status,
        "ms": round(1000 * seconds, 2),
        "bytes": response.size,
    }
    _logger.info("request", extra={"fields": fields})


class HeaderMiddleware:
    """Refuses requests for other hosts, and requests whose headers can be understood in two ways.

    The parser httptools of uvicorn appends trailers to the headers, so a trailer never replaces a header.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str]) -> None:
        self.app, self._allowed_hosts = app, allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers of a request, and pass it on."""
        if scope["type"] == "http":
            refused = self._check(scope)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> Response | None:
        single: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _SINGLE_HEADERS:
                if name in single:
                    return problem_response(400, f"The request has two {_SINGLE_HEADERS[name]} headers.", _CLOSE)
                single[name] = value
        if b"content-length" in single and b"transfer-encoding" in single:
            return problem_response(400, "The request has both Content-Length and Transfer-Encoding.", _CLOSE)
        host = single.get(b"host", b"").decode("latin-1")
        if not is_allowed_host(host, self._allowed_hosts) and not _is_probe(scope):
            sentence = "The service does not accept this host name; its operator can allow it with --allow-host."
            return problem_response(421, sentence)
        return None


def _is_probe(scope: Scope) -> bool:
    return bool(scope["path"].removeprefix(scope.get("root_path", "")) in _PROBES)
