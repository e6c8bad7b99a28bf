"""Search by key, code, embedding, vector or image."""

import asyncio
from typing import Any

import msgspec
import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response

from proxyhash.index.where.expression import parse_expression
from proxyhash.serve.bodies import JSON, is_image, validate_fields
from proxyhash.serve.documentation import BUSY, image_bodies, json_body, query_parameters
from proxyhash.serve.encoding import EncodedQuery
from proxyhash.serve.schemas import FormSearchOptions, SearchOptions, SearchRequest, SearchResponse
from proxyhash.serve.service import Service
from proxyhash.serve.workers.searcher import SearchQuery

_DOCUMENTATION: dict[str, Any] = {
    "parameters": query_parameters(FormSearchOptions, "For an image only; JSON has its options in the body."),
    "requestBody": {"required": True, "content": {**json_body(SearchRequest), **image_bodies(FormSearchOptions)}},
}


def add_search_route(app: FastAPI, service: Service) -> None:
    """Add the route of searches."""

    @app.post("/api/v1/search", tags=["search"], response_model=SearchResponse, responses=BUSY, openapi_extra=_DOCUMENTATION)
    async def search(request: Request) -> Response:
        """Find the nearest items of an item, a code, an embedding, a vector or an image.

        JSON has exactly one of `key`, `code`, `embedding` and `vector`. A vector is encoded by the model of the index. An
        image is the body itself, or the field `image` of a form; its options are query parameters or form fields.
        """
        if is_image(request):
            query = await _image_query(service, request)
        else:
            if request.scope["query_string"]:
                raise HTTPException(422, "A search by JSON has no query parameters; put its options into the body.")
            query = await _json_query(service, await service.bodies.read_json(request, SearchRequest, service.search_bytes))
        return Response(await service.search(query), media_type=JSON)


async def _json_query(service: Service, asked: SearchRequest) -> SearchQuery:
    if asked.embedding is not None:
        return make_query(np.asarray(asked.embedding, np.float32).tobytes(), asked, is_embedding=True)
    if asked.vector is not None:
        return _encoded_query(await service.vector_encoder.embed(asked.vector), asked)
    if asked.code is not None:
        return make_query(bytes.fromhex(asked.code), asked)
    stored = await asyncio.to_thread(service.index.stored_queries, [str(asked.key)])
    query = make_query(stored.codes.tobytes(), asked)
    if stored.rows is None:
        return query
    return msgspec.structs.replace(query, refinement=stored.rows.rows.tobytes(), refiner_id=stored.rows.refiner_id)


async def _image_query(service: Service, request: Request) -> SearchQuery:
    async with service.bodies.read_image(request, service.settings.limits.image_bytes) as upload:
        options = validate_fields(upload.fields, FormSearchOptions)
        encoded = await service.encoder.embed(upload.data)
    return _encoded_query(encoded, options)


def _encoded_query(encoded: EncodedQuery, options: SearchOptions) -> SearchQuery:
    """Return the query of an image or a vector, with its features."""
    query = make_query(encoded.embedding.astype(np.float32).tobytes(), options, is_embedding=True)
    if encoded.features is None or options.refine is False:
        return query
    return msgspec.structs.replace(query, features=encoded.features.astype(np.float32).tobytes())


def make_query(row: bytes, options: SearchOptions, *, is_embedding: bool = False) -> SearchQuery:
    """Return the query for the search process, with the bytes of a packed code or of an embedding of float32."""
    if options.where is not None:
        parse_expression(options.where)  # a filter that is no expression is refused before the query waits
    return SearchQuery(
        row,
        is_embedding,
        options.k,
        radius=options.radius,
        rerank=options.rerank,
        labels=tuple(options.labels),
        refine=options.refine,
        where=options.where,
    )
