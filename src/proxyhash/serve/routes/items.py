"""Items: list, show, add and delete them, and their thumbnails."""

import asyncio
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.security import HTTPBearer
from numpy.typing import NDArray

from proxyhash.columns import to_json_value
from proxyhash.index.base import Index
from proxyhash.index.local.items import Item
from proxyhash.index.queries import from_embeddings
from proxyhash.index.results import AddResult
from proxyhash.serve.bodies import is_image, require_json, validate_fields
from proxyhash.serve.documentation import BUSY, NOT_FOUND, WRITE, image_bodies, json_body, query_parameters
from proxyhash.serve.encoding import EncodedQuery, check_can_encode
from proxyhash.serve.schemas import (
    AddRequest,
    AddResponse,
    DeleteRequest,
    DeleteResponse,
    ImageItem,
    ItemPage,
    ItemQuery,
    ItemResponse,
    NewItem,
    ThumbnailQuery,
)
from proxyhash.serve.security import check_token
from proxyhash.serve.service import Service

_ADD: dict[str, Any] = {
    "parameters": query_parameters(ImageItem, "For an image only.", optional=True),
    "requestBody": {"required": True, "content": {**json_body(AddRequest), **image_bodies(ImageItem)}},
}
_DELETE: dict[str, Any] = {"requestBody": {"required": True, "content": json_body(DeleteRequest)}}


def add_item_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that read items."""
    index = service.index

    @app.get("/api/v1/items", tags=["items"])
    async def list_items(query: Annotated[ItemQuery, Query()]) -> ItemPage:
        """List items in the order of their keys, or a random sample of them."""
        if query.sample is not None:
            sample = await asyncio.to_thread(index.sample_items, query.sample)
            return ItemPage(items=[describe_item(item) for item in sample], next=None)
        items = await asyncio.to_thread(index.list_items, query.after, query.limit + 1)
        page = [describe_item(item) for item in items[: query.limit]]
        return ItemPage(items=page, next=page[-1].key if len(items) > query.limit else None)

    @app.get("/api/v1/items/{key:path}", tags=["items"], responses=NOT_FOUND)
    async def get_item(key: str) -> ItemResponse:
        """Show one item."""
        return describe_item(await asyncio.to_thread(index.item, key))

    @app.get(
        "/api/v1/thumbnails/{key:path}",
        tags=["items"],
        response_class=Response,
        responses={**NOT_FOUND, **BUSY, 200: {"content": {"image/jpeg": {}}}},
    )
    async def get_thumbnail(key: str, query: Annotated[ThumbnailQuery, Query()], request: Request) -> Response:
        """Return a small JPEG of the image that an item was added from."""
        item = await asyncio.to_thread(index.item, key)
        thumbnail = await service.thumbnails.get(item, query.size)
        headers = {"ETag": thumbnail.etag, "Cache-Control": "private, max-age=300"}
        if request.headers.get("if-none-match") == thumbnail.etag:
            return Response(status_code=304, headers=headers)
        return Response(thumbnail.data, headers=headers, media_type="image/jpeg")


def add_editing_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that change the index; they need the token."""

    def require_token(request: Request) -> None:
        check_token(request.headers.get("authorization"), service.settings.token)

    bearer = HTTPBearer(auto_error=False, description="The token of the service.")
    options: dict[str, Any] = {
        "tags": ["items"],
        "dependencies": [Depends(bearer), Depends(require_token)],
        "responses": WRITE,
    }
    limits = service.settings.limits

    @app.post("/api/v1/items", openapi_extra=_ADD, **options)
    async def add_items(request: Request) -> AddResponse:
        """Add items by their codes or vectors, or one image; an item with the same key is replaced.

        The response is sent when the change is on disk. Of an image or a vector only the code is stored.
        """
        if is_image(request):
            async with service.bodies.read_image(request, limits.image_bytes) as upload:
                item = validate_fields(upload.fields, ImageItem)
                encoded = await service.encoder.embed(upload.data)
            result = await service.writer.run(lambda index: _add_image(index, encoded, item))
        else:
            asked = await service.bodies.read_json(request, AddRequest, limits.items_bytes)
            if asked.items[0].vector is not None:
                await asyncio.to_thread(check_can_encode, service.index, "vector")
            result = await service.writer.run(lambda index: _add_items(index, asked))
        return AddResponse(added=result.added, replaced=result.replaced)

    @app.post("/api/v1/items/delete", openapi_extra=_DELETE, **options)
    async def delete_items(request: Request) -> DeleteResponse:
        """Delete several items: all, or none if one is unknown."""
        require_json(request)
        asked = await service.bodies.read_json(request, DeleteRequest, limits.items_bytes)
        return DeleteResponse(deleted=await service.writer.run(lambda index: index.remove(asked.keys)))

    @app.delete("/api/v1/items/{key:path}", **options)
    async def delete_item(key: str) -> DeleteResponse:
        """Delete one item."""
        await asyncio.to_thread(service.index.item, key)
        return DeleteResponse(deleted=await service.writer.run(lambda index: index.remove([key])))


def describe_item(item: Item) -> ItemResponse:
    """Return an item as clients see it."""
    columns = {name: to_json_value(value) for name, value in item.columns.items()}
    return ItemResponse(key=item.key, labels=list(item.labels), has_image=item.has_image, columns=columns)


def _add_image(index: Index, encoded: EncodedQuery, item: ImageItem) -> AddResult:
    """Add an image that was encoded before, with its features if the index has a refinement."""
    features = None if encoded.features is None else encoded.features[None]
    query = from_embeddings([item.key], encoded.embedding[None], index.bits, features)
    columns = {name: [value] for name, value in item.columns.items()}
    return index.add(query, [item.key], [tuple(item.labels)], columns=columns)


def _add_items(index: Index, asked: AddRequest) -> AddResult:
    originals: list[NDArray[Any]] = [_original(item) for item in asked.items]
    if len({len(original) for original in originals}) > 1:
        raise HTTPException(422, "All codes or vectors of an index have one length; these have several.")
    labels = [tuple(item.labels) for item in asked.items]
    names = {name for item in asked.items for name in item.columns}
    columns = {name: [item.columns.get(name) for item in asked.items] for name in names}
    return index.add(np.stack(originals), [item.key for item in asked.items], labels, columns=columns)


def _original(item: NewItem) -> NDArray[Any]:
    """Return the packed code (bytes,) of an item, or its vector (width,) as floats."""
    if item.code is not None:
        return np.frombuffer(bytes.fromhex(item.code), np.uint8)
    return np.array(item.vector, np.float64)
