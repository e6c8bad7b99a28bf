"""Errors as problem details (RFC 9457): a JSON object with one sentence in `detail`."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from proxyhash.serve.errors import BusyError
from proxyhash.serve.logs import SERVICE_LOGGER
from proxyhash.utils.errors import DamagedError, FilterError, IndexChangedError, InputError, KeyNotFoundError

PROBLEM_JSON = "application/problem+json"
DAMAGED = "The index is damaged; the log of the service has the details."
UNAVAILABLE = "The index cannot be read at the moment; try again later."
FAILED = "The service failed to answer this request; its log has the details."

_logger = logging.getLogger(SERVICE_LOGGER)


def problem_response(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, field: str | None = None
) -> Response:
    """Return an error response; `detail` is one sentence, `field` names what is wrong in the request, if that is known."""
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if field is not None:
        content["field"] = field
    return Response(msgspec.json.encode(content), status, dict(headers or {}), PROBLEM_JSON)


def error_response(error: Exception, location: str) -> Response:
    """Return the response to an exception; what is not the fault of the request is logged.

    An InputError that names the location of the index is about the index: it is locked, or not there.
    """
    if isinstance(error, BusyError):
        return busy_response(str(error), error.retry_after)
    if isinstance(error, IndexChangedError):
        return busy_response("The index was replaced during the request; send it again.")
    if isinstance(error, FilterError):
        return problem_response(422, str(error), field="where")
    if isinstance(error, InputError) and not isinstance(error, DamagedError):
        if location in str(error):
            _logger.warning("The index cannot be read: %s", error)
            return busy_response(UNAVAILABLE)
        return problem_response(404 if isinstance(error, KeyNotFoundError) else 422, str(error))
    _logger.error("A request failed.", exc_info=error)
    return problem_response(500, DAMAGED if isinstance(error, DamagedError) else FAILED)


def busy_response(sentence: str, retry_after: int = 1) -> Response:
    """Return the response to a request that may be sent again."""
    return problem_response(503, sentence, {"Retry-After": str(retry_after)})


def add_handlers(app: FastAPI, location: str) -> None:
    """Let the application answer every exception with problem details."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        detail = error.detail
        if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:  # the router's own words
            detail = f"There is nothing at {request.url.path}."
        if error.status_code == 405:
            detail = f"{request.url.path} does not accept {request.method}."
        return problem_response(error.status_code, detail, error.headers)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> Response:
        status, detail, field = describe_validation(error.errors())
        return problem_response(status, detail, field=field)

    @app.exception_handler(InputError)
    @app.exception_handler(BusyError)
    async def known_error(_: Request, error: Exception) -> Response:
        return error_response(error, location)


def describe_validation(errors: Sequence[Any]) -> tuple[int, str, str | None]:
    """Return the status, a sentence and the field for the first error that pydantic found.

    >>> describe_validation([{"type": "missing", "loc": ("body", "key"), "msg": "Field required"}])
    (422, 'The request is not valid: key: field required.', 'key')
    """
    first = errors[0]
    message = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    if first["type"] == "json_invalid":
        return 400, f"The body is not JSON: {message.removeprefix('Invalid JSON: ')}.", None
    location = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    message = message[:1].lower() + message[1:]
    return 422, f"The request is not valid: {f'{location}: ' if location else ''}{message}.", location or None


def not_acceptable(sentence: str) -> HTTPException:
    """Return the error for a body of another media type."""
    return HTTPException(415, sentence, headers={"Accept-Post": "application/json, image/*, multipart/form-data"})


def document_problems(openapi: dict[str, Any]) -> dict[str, Any]:
    """Give every error response of an OpenAPI document the schema and the media type of problem details."""
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in openapi["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if not status.startswith("2"):
                    response["content"] = content
    return openapi
