"""A server that is away for a moment: what is asked is asked again, with growing pauses."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from proxyhash.utils.errors import InputError

Result = TypeVar("Result")

PATIENCE = 300.0  # seconds until a server counts as gone: a restart with much to load takes minutes
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

# What Milvus answers while it starts, loads, moves shards between nodes or is asked too much (its package merr).
_PASSING = {1, 2, 4, 8, 101, 103, 106, 400, 401, 500, 501, 503, 600, 601, 901, 902, 903, 904, 905}
_PASSING_CALLS = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}  # of gRPC


def patiently(
    ask: Callable[[], Result],
    where: object,
    *,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Return what `ask` returns; while the server is away or busy it is asked again, so asking twice must do no harm.

    Pauses double up to five seconds and vary by half, so that many writers do not come back at one moment.
    """
    begun, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            return ask()
        except Exception as error:
            if not from_server(error):
                raise
            if not passes(error) or time.monotonic() - begun >= patience:
                raise InputError(f"Milvus at {where} failed: {sentence(error)}.") from error
        sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, LONGEST_PAUSE)


def from_server(error: Exception) -> bool:
    """Return whether this is an error of the server or the way to it, and none of ours."""
    import grpc
    from pymilvus.exceptions import MilvusException

    return isinstance(error, (MilvusException, grpc.RpcError, ConnectionError))


def passes(error: Any) -> bool:
    """Return whether the same request may succeed later."""
    code = getattr(error, "code", None)
    code = code() if callable(code) else code
    name = getattr(code, "name", None)  # a status of gRPC has one
    return bool(getattr(error, "retriable", False)) or code in _PASSING or name in _PASSING_CALLS


def sentence(error: Exception) -> str:
    """Return what the server said, in one line."""
    text = " ".join(str(getattr(error, "message", "") or error).split())
    return text[:300].rstrip(".") or type(error).__name__
