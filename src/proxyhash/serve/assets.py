"""The page and what belongs to it, read once from the package."""

import hashlib
from importlib import resources

from proxyhash.serve.http import Answer
from proxyhash.serve.routes import Route

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def page_routes() -> tuple[Route, ...]:
    """Return a route for each file of the page; the page itself is what is found without a path."""
    folder = resources.files(__package__).joinpath("page")
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS}
    return tuple(_route("/" if name == "index.html" else f"/page/{name}", name, content) for name, content in files.items())


def _route(path: str, name: str, content: bytes) -> Route:
    kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"
    tag = hashlib.blake2b(content, digest_size=12).hexdigest()
    answer = Answer(content, kind=kind, headers={"Cache-Control": "no-cache", "ETag": f'"{tag}"'})

    async def file(_: None, __: None) -> Answer:
        """Return a file of the page."""
        return answer

    return Route("GET", path, file, kind)
