"""The HTTP service of an index: an ASGI application, a search page, and the server of `proxyhash serve`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxyhash.serve.app import create_app
    from proxyhash.serve.settings import Limits, Settings

__all__ = ["Limits", "Settings", "create_app"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is used: worker processes do not need FastAPI."""
    if name == "create_app":
        from proxyhash.serve.app import create_app

        return create_app
    if name in ("Limits", "Settings"):
        from proxyhash.serve import settings

        return getattr(settings, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
