"""The search page, its files, and the documentation of the API."""

import hashlib
from functools import lru_cache
from importlib import resources

from fastapi import FastAPI, Request, Response

from proxyhash.serve.api_docs import render_docs

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def add_page_routes(app: FastAPI) -> None:
    """Add the routes of the page; links in it are relative, since the application may be mounted below a path."""
    folder = resources.files("proxyhash.serve").joinpath("page")
    for file in folder.iterdir():
        if file.name.rpartition(".")[2] in _MEDIA_TYPES:
            _add_file(app, "/" if file.name == "index.html" else f"/page/{file.name}", file.name, file.read_bytes())

    @lru_cache
    def docs() -> str:
        return render_docs(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def get_docs() -> Response:
        return Response(docs(), media_type="text/html")


def _add_file(app: FastAPI, path: str, name: str, data: bytes) -> None:
    etag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"Cache-Control": "no-cache", "ETag": etag}
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]

    @app.get(path, name=name, include_in_schema=False)
    async def get_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=media_type)
