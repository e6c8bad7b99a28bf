"""`create_app`: the service as an ASGI application."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from proxyhash import __version__
from proxyhash.index.base import Index
from proxyhash.serve.documentation import ANY, DESCRIPTION
from proxyhash.serve.middleware import HeaderMiddleware, ObserveMiddleware
from proxyhash.serve.problems import add_handlers, document_problems
from proxyhash.serve.routes.items import add_editing_routes, add_item_routes
from proxyhash.serve.routes.page import add_page_routes
from proxyhash.serve.routes.search import add_search_route
from proxyhash.serve.routes.status import add_status_routes
from proxyhash.serve.schemas import Problem
from proxyhash.serve.service import Service
from proxyhash.serve.settings import Settings


def create_app(index: str | Path | Index, settings: Settings | None = None) -> FastAPI:
    """Return the service of an index as an ASGI application, for any ASGI server or to be mounted in another application.

    Parameters
    ----------
    index
        The folder of an index, an address such as milvus://host:19530/photos, or an open index, whose location is used.
    settings
        Token, hosts and limits; None: the defaults, read-only.

    Returns
    -------
    FastAPI
        The application. Its processes start with the lifespan event of the server, or with the first search if the
        server sends none, as for mounted applications. `app.state.service.close()` ends them early.

    Raises
    ------
    InputError
        If there is no index at the location.

    Examples
    --------
    >>> import tempfile
    >>> from fastapi.testclient import TestClient
    >>> folder = tempfile.TemporaryDirectory()
    >>> Index.open(f"{folder.name}/index", bits=8).close()
    >>> with TestClient(create_app(f"{folder.name}/index"), "http://localhost") as client:
    ...     client.get("/api/v1/info").json()["bits"]
    8
    >>> folder.cleanup()
    """
    service = Service(index.info().location if isinstance(index, Index) else str(index), settings or Settings())
    app = FastAPI(
        title="proxyhash",
        version=__version__,
        description=DESCRIPTION,
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=ANY,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    for add_routes in (add_search_route, add_item_routes, add_editing_routes, add_status_routes):
        add_routes(app, service)
    add_page_routes(app)
    add_handlers(app, service.location)
    _add_middleware(app, service)
    _document(app)
    return app


def _add_middleware(app: FastAPI, service: Service) -> None:
    """Add middleware; the last one is the outermost."""
    if service.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(service.settings.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(HeaderMiddleware, allowed_hosts=service.settings.allowed_hosts)
    app.add_middleware(ObserveMiddleware, metrics=service.metrics, location=service.location)


def _document(app: FastAPI) -> None:
    """Let the OpenAPI document describe errors as problem details."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            document.setdefault("components", {}).setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
            document_problems(document)
        return app.openapi_schema or generate()

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does it
