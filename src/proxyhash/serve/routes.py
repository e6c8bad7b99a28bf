"""Everything the service answers: the one table that requests are looked up in and the OpenAPI document is made of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from proxyhash.serve import messages
from proxyhash.serve.http import Answer
from proxyhash.serve.service import Service

Handler = Callable[[Any, Any], Awaitable[msgspec.Struct | Answer]]

IMAGE_BODY = "image"
"""As the type of a body: the bytes of an image."""


@dataclass(frozen=True)
class Route:
    """What is asked by a method and a path; `query` and `body` say what comes along, `answer` what goes back."""

    method: str
    path: str
    handler: Handler
    answer: type[msgspec.Struct] | str  # or the kind of a file
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | str | None = None
    refusals: tuple[int, ...] = ()  # statuses of its own, beside those that any request can have
    writes: bool = False

    @property
    def summary(self) -> str:
        """Return the first line of the handler's docstring."""
        return (self.handler.__doc__ or "").strip().splitlines()[0]


def api_routes(service: Service) -> tuple[Route, ...]:
    """Return the API."""
    search, browse, edit = service.searching, service.browsing, service.editing
    found, added, removed = messages.SearchAnswer, messages.AddAnswer, messages.RemoveAnswer
    return (
        Route("POST", "/api/search/code", search.by_code, found, body=messages.CodeSearch, refusals=(503,)),
        Route("POST", "/api/search/key", search.by_key, found, body=messages.KeySearch, refusals=(404, 503)),
        Route("POST", "/api/search/image", search.by_image, found, messages.ImageSearch, IMAGE_BODY, (501, 503)),
        Route("GET", "/api/info", browse.info, messages.InfoAnswer),
        Route("GET", "/api/item", browse.item, messages.ItemAnswer, messages.OneKey, refusals=(404,)),
        Route("GET", "/api/sample", browse.sample, messages.ItemsAnswer, messages.Count),
        Route("GET", "/api/image", browse.image, "image/jpeg", messages.ImageOf, refusals=(404,)),
        Route("POST", "/api/add/codes", edit.add_codes, added, None, messages.AddCodes, (503,), writes=True),
        Route("POST", "/api/add/image", edit.add_image, added, messages.AddImage, IMAGE_BODY, (501, 503), writes=True),
        Route("POST", "/api/remove", edit.remove, removed, None, messages.RemoveKeys, (503,), writes=True),
        Route("GET", "/health", service.health, messages.StateAnswer),
        Route("GET", "/ready", service.readiness, messages.StateAnswer, refusals=(503,)),
    )
