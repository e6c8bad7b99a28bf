"""The OpenAPI document: the table of routes and the types of messages, in the words that other tools read."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from proxyhash import __version__
from proxyhash.serve.http import JSON
from proxyhash.serve.messages import ErrorAnswer
from proxyhash.serve.routes import IMAGE_BODY, Route

_REFERENCE = "#/components/schemas/{name}"
_IMAGES = ("image/*", "application/octet-stream")
_ANY = (400, 421, 422)  # refusals that every request can have


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document of an API."""
    types = [kind for route in routes for kind in (route.query, route.body, route.answer) if isinstance(kind, type)]
    _, schemas = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=_REFERENCE)
    queries = {route.query.__name__ for route in routes if route.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "proxyhash",
            "version": __version__,
            "description": "Search an index of images by their binary codes. Every refusal is a sentence in `error`.",
        },
        "paths": {route.path: {route.method.lower(): _operation(route, schemas)} for route in routes},
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.path.strip("/").removeprefix("api/").replace("/", "_"),
        "summary": route.summary,
        "responses": _responses(route),
    }
    if route.query is not None:
        operation["parameters"] = _parameters(schemas[route.query.__name__])
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _body(route.body)}
    if route.writes:
        operation["security"] = [{"token": []}]
    return operation


def _parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": facts}
        for name, facts in schema["properties"].items()
    ]


def _body(body: type[msgspec.Struct] | str) -> dict[str, Any]:
    if body == IMAGE_BODY:
        return {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _IMAGES}
    assert isinstance(body, type)
    return _json(body)


def _responses(route: Route) -> dict[str, Any]:
    content = {route.answer: {}} if isinstance(route.answer, str) else _json(route.answer)
    statuses = {*_ANY, *route.refusals}
    if route.body is not None:
        statuses |= {408, 413, 415}
    if route.writes:
        statuses |= {401, 403}
    refused: dict[str, Any] = {
        str(status): {"description": _phrase(status), "content": _json(ErrorAnswer)} for status in sorted(statuses)
    }
    refused["400"]["content"]["text/plain"] = {}  # what is no HTTP, or has an address of more than 64 KiB, never reaches us
    return {"200": {"description": "Done.", "content": content}, **refused}


def _phrase(status: int) -> str:
    return f"{HTTPStatus(status).phrase}."


def _json(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}
