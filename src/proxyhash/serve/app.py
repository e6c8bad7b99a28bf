"""The application: from a request to its answer, whatever happens in between.

All paths are fixed, so that one look into a dictionary finds the handler, and no framework is needed.
"""

from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec

from proxyhash.serve.access import check_token, is_allowed_host
from proxyhash.serve.http import JSON, Answer, RefusalError
from proxyhash.serve.logs import Log
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.reading import check_kind, read_json, read_query
from proxyhash.serve.requests import Request
from proxyhash.serve.routes import IMAGE_BODY, Route
from proxyhash.serve.service import Service
from proxyhash.serve.settings import Limits, Settings
from proxyhash.utils.errors import InputError

_PROBES = frozenset({"/health", "/ready"})


class App:
    """Looks up what is asked for, checks who asks, and turns every outcome into an answer."""

    def __init__(
        self, service: Service, routes: Mapping[str, Mapping[str, Route]], settings: Settings, metrics: Metrics, log: Log
    ) -> None:
        self._service, self._routes, self._settings, self._metrics, self._log = service, routes, settings, metrics, log
        self._numbers = count(1)

    @property
    def limits(self) -> Limits:
        """Return what a request may cost."""
        return self._settings.limits

    async def respond(self, request: Request) -> Answer:
        """Return the answer to a request, whatever happens."""
        request.number = next(self._numbers)
        try:
            return await self._handled(request)
        except RefusalError as refusal:
            return refusal.answer()
        except InputError as error:
            return RefusalError(422, str(error)).answer()
        except Exception as error:
            self._log.failure(request.number, error)
            sentence = f"Something failed that should not; the service's log has it as request {request.number}."
            return RefusalError(500, sentence).answer()

    def finished(self, request: Request, answer: Answer, seconds: float) -> None:
        """Count a request that was answered, and log it."""
        self._metrics.count(request.path if request.path in self._routes else "other", answer.status, seconds)
        self._log.request(request.number, request.method, request.path, answer.status, seconds, len(answer.body))

    async def _handled(self, request: Request) -> Answer:
        route = self._route(request.method, request.path, request.headers.get(b"host", b""))
        if route.writes:
            check_token(request.header(b"authorization"), self._settings.token)
        if not self._service.ready and route.path.startswith("/api/search"):
            await self._service.readiness(None, None)
        # What is no API is also reached by links to which others add their parameters.
        query = read_query(request.query if route.path.startswith("/api/") else b"", route.query)
        if route.body == IMAGE_BODY:
            with self._service.uploads.room():
                return _encoded(await route.handler(query, await self._body(route, request)))
        body = None if route.body is None else await self._body(route, request)
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

    async def _body(self, route: Route, request: Request) -> Any:
        check_kind(request.header(b"content-type"), IMAGE_BODY if route.body == IMAGE_BODY else JSON)
        body = await request.body.read(request.header(b"content-length"), self.limits.body_bytes)
        return read_json(body, route.body) if isinstance(route.body, type) else body


def _encoded(result: msgspec.Struct | Answer) -> Answer:
    return result if isinstance(result, Answer) else Answer(msgspec.json.encode(result))
