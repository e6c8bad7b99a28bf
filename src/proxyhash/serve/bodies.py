"""Request bodies, received within limits of size, time and memory.

A body is read only after the Host and the token of its request were checked, so FastAPI does not read it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.requests import ClientDisconnect

from proxyhash.serve.errors import BusyError
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.problems import not_acceptable

JSON = "application/json"
MULTIPART = "multipart/form-data"
IMAGE_FIELD = "image"
_MAX_FIELDS = 200  # of a form: labels may be repeated

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class ImageUpload:
    """The bytes of an image, and the other parameters or fields of its request."""

    data: bytes
    fields: dict[str, Any]


class BodyReader:
    """Reads bodies; the bytes of all bodies together are limited."""

    def __init__(self, *, bytes_in_flight: int, body_seconds: float, max_uploads: int, metrics: Metrics) -> None:
        self._max_bytes, self._seconds, self._max_uploads, self._metrics = (
            bytes_in_flight,
            body_seconds,
            max_uploads,
            metrics,
        )
        self._bytes = self._uploads = 0

    async def read_json(self, request: Request, model: type[Model], max_bytes: int) -> Model:
        """Return the JSON body of a request as a model."""
        body = _Body(self, request, max_bytes)
        try:
            data = await self._in_time(body.read())
            return model.model_validate_json(data)
        except ValidationError as error:
            raise RequestValidationError(error.errors(include_url=False, include_context=False)) from None
        finally:
            body.release()

    @asynccontextmanager
    async def read_image(self, request: Request, max_bytes: int) -> AsyncIterator[ImageUpload]:
        """Give the image of a request, from its raw body or from the field `image` of a form."""
        if self._uploads >= self._max_uploads:
            raise BusyError
        body = _Body(self, request, max_bytes)
        self._count_upload(1)
        try:
            yield await self._in_time(self._receive_image(request, body))
        finally:
            self._count_upload(-1)
            body.release()

    async def _receive_image(self, request: Request, body: "_Body") -> ImageUpload:
        if media_type(request) != MULTIPART:
            upload = ImageUpload(bytes(await body.read()), collect_fields(request.query_params))
        else:
            bounded = Request(request.scope, body.receive)
            async with bounded.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=body.max_bytes) as form:
                upload = ImageUpload(await _form_image(form), collect_fields(form) | collect_fields(request.query_params))
        if not upload.data:
            raise HTTPException(422, "The image is empty; send its bytes as the body, or as the form field image.")
        return upload

    async def _in_time(self, reading: Any) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await reading
        except TimeoutError:
            sentence = f"The body did not arrive within {self._seconds:g} seconds."
            raise HTTPException(408, sentence, headers={"Connection": "close"}) from None
        except ClientDisconnect:
            raise HTTPException(400, "The connection ended before the body did.") from None

    def reserve(self, count: int) -> None:
        """Count bytes that are now in memory; BusyError if there are too many."""
        if self._bytes + count > self._max_bytes:
            raise BusyError("The service is receiving too much data; try again in a moment.")
        self._bytes += count
        self._metrics.body_bytes.set(self._bytes)

    def release(self, count: int) -> None:
        """Count bytes that are no longer in memory."""
        self._bytes -= count
        self._metrics.body_bytes.set(self._bytes)

    def _count_upload(self, change: int) -> None:
        self._uploads += change
        self._metrics.uploads.set(self._uploads)


class _Body:
    """The body of one request, of at most `max_bytes`."""

    def __init__(self, reader: BodyReader, request: Request, max_bytes: int) -> None:
        self._reader, self._receive, self.max_bytes = reader, request.receive, max_bytes
        self._size = 0
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > max_bytes):
            raise self._too_large()

    async def receive(self) -> Any:
        """Return the next ASGI message of the body, as a server's `receive` does."""
        message = await self._receive()
        size = len(message.get("body", b""))
        if self._size + size > self.max_bytes:
            raise self._too_large()
        self._reader.reserve(size)
        self._size += size
        return message

    async def read(self) -> bytes | bytearray:
        """Return the whole body."""
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            return bytes(message.get("body", b""))  # the usual case: one message
        data = bytearray()  # many small chunks would take many times their size as a list of bytes
        while message["type"] == "http.request":
            data += message.get("body", b"")
            if not message.get("more_body", False):
                return data
            message = await self.receive()
        raise ClientDisconnect

    def release(self) -> None:
        """Say that the body is no longer in memory."""
        self._reader.release(self._size)
        self._size = 0

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"The body may have at most {self.max_bytes:,} bytes.")


def media_type(request: Request) -> str:
    """Return the media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_json(request: Request) -> None:
    """Raise HTTPException unless the body is JSON. Other sites cannot send JSON without a CORS preflight."""
    if media_type(request) != JSON:
        raise not_acceptable(f"The Content-Type must be {JSON}.")


def is_image(request: Request) -> bool:
    """Return whether the body is an image or a form with one, False for JSON; HTTPException for everything else."""
    kind = media_type(request)
    if kind == JSON:
        return False
    if kind == MULTIPART or kind.startswith("image/") or kind == "application/octet-stream":
        return True
    raise not_acceptable(
        f"The Content-Type must be {JSON}, an image such as image/jpeg, application/octet-stream, or {MULTIPART} "
        f"with the field {IMAGE_FIELD} (curl -F {IMAGE_FIELD}=@photo.jpg)."
    )


def validate_fields(fields: dict[str, Any], model: type[Model]) -> Model:
    """Return query parameters or form fields as a model."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_context=False)) from None


def collect_fields(values: QueryParams | FormData) -> dict[str, Any]:
    """Return text fields by name; `labels` is a list."""
    fields: dict[str, Any] = {}
    for name, value in values.multi_items():
        if isinstance(value, UploadFile):
            continue
        if name == "labels":
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise HTTPException(422, f"{name} may be given once.")
        else:
            fields[name] = value
    return fields


async def _form_image(form: FormData) -> bytes:
    uploads = [name for name, value in form.multi_items() if isinstance(value, UploadFile)]
    upload = form.get(IMAGE_FIELD)
    if uploads != [IMAGE_FIELD] or not isinstance(upload, UploadFile):
        sentence = f"The form must have one file, in the field {IMAGE_FIELD} (curl -F {IMAGE_FIELD}=@photo.jpg)."
        raise HTTPException(422, sentence)
    return await upload.read()
