"""The ASGI application: from a request to its answer, whatever happens in between.

All paths are fixed, so that one look into a dictionary finds the handler, and no framework is needed.
"""

import asyncio
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec

from proxyhash.serve.access import check_token, is_allowed_host
from proxyhash.serve.http import JSON, Answer, Receive, RefusalError, Send, busy, read_body
from proxyhash.serve.logs import Log
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.reading import check_kind, read_json, read_query
from proxyhash.serve.routes import IMAGE_BODY, Route
from proxyhash.serve.service import Service
from proxyhash.serve.settings import Settings
from proxyhash.support.errors import InputError

Headers = dict[bytes, bytes]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_PROBES = frozenset({"/health", "/ready"})


class App:
    """Looks up what is asked for, checks who asks, and turns every outcome into an answer."""

    def __init__(
        self, service: Service, routes: Mapping[str, Mapping[str, Route]], settings: Settings, metrics: Metrics, log: Log
    ) -> None:
        self._service, self._routes, self._settings, self._metrics, self._log = service, routes, settings, metrics, log
        self._numbers = count(1)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun, number, path = time.perf_counter(), next(self._numbers), scope["path"]
        seconds = self._settings.limits.answer_seconds
        answer: Answer | None = None
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(number, scope, receive)
                await _send(send, answer, with_body=scope["method"] != "HEAD")
        except TimeoutError:
            if answer is not None:  # a client that does not read what it asked for
                raise
            answer = busy(f"The answer took longer than {seconds:g} seconds.").answer()
            await _send(send, answer)
        spent = time.perf_counter() - begun
        self._metrics.count(path if path in self._routes else "other", answer.status, spent)
        self._log.request(number, scope["method"], path, answer.status, spent, len(answer.body))

    async def _answer(self, number: int, scope: dict[str, Any], receive: Receive) -> Answer:
        try:
            return await self._handled(scope, receive)
        except RefusalError as refusal:
            return refusal.answer()
        except InputError as error:
            return RefusalError(422, str(error)).answer()
        except TimeoutError:
            raise
        except Exception as error:
            self._log.failure(number, error)
            return RefusalError(
                500, f"Something failed that should not; the service's log has it as request {number}."
            ).answer()

    async def _handled(self, scope: dict[str, Any], receive: Receive) -> Answer:
        headers: Headers = dict(scope["headers"])
        route = self._route(scope["method"], scope["path"], headers.get(b"host", b""))
        if route.writes:
            check_token(_text(headers, b"authorization"), self._settings.token)
        if not self._service.ready and route.path.startswith("/api/search"):
            await self._service.readiness(None, None)
        # What is no API is also reached by links to which others add their parameters.
        query = read_query(scope["query_string"] if route.path.startswith("/api/") else b"", route.query)
        if route.body == IMAGE_BODY:
            with self._service.uploads.room():
                return _encoded(await route.handler(query, await self._body(route, headers, receive)))
        body = None if route.body is None else await self._body(route, headers, receive)
        return _encoded(await route.handler(query, body))

    def _route(self, method: str, path: str, host: bytes) -> Route:
        if path not in _PROBES and not is_allowed_host(host.decode("latin-1"), self._settings.names):
            raise RefusalError(421, "The service is not known by this name; start it with --allow-host to change that.")
        methods = self._routes.get(path)
        if methods is None:
            raise RefusalError(404, f"There is nothing at {path}.")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise RefusalError(405, f"{path} does not take {method}.", Allow=", ".join(sorted(methods)))
        return route

    async def _body(self, route: Route, headers: Headers, receive: Receive) -> Any:
        limits, announced = self._settings.limits, _text(headers, b"content-length")
        check_kind(_text(headers, b"content-type"), IMAGE_BODY if route.body == IMAGE_BODY else JSON)
        body = await read_body(receive, announced, limits.body_bytes, limits.body_seconds)
        return read_json(body, route.body) if isinstance(route.body, type) else body


def _encoded(result: msgspec.Struct | Answer) -> Answer:
    return result if isinstance(result, Answer) else Answer(msgspec.json.encode(result))


def _text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


async def _send(send: Send, answer: Answer, *, with_body: bool = True) -> None:
    headers = [(b"content-type", answer.kind.encode()), (b"content-length", b"%d" % len(answer.body)), *_ALWAYS]
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if with_body else b""})
