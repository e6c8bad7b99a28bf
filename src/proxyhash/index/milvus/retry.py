"""Retries of requests while a Milvus server is away or busy, and its error messages."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from proxyhash.utils.errors import InputError

Result = TypeVar("Result")

RETRY_SECONDS = 300.0  # until a server counts as gone: a restart with much to load takes minutes
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0  # seconds

# Codes that Milvus answers while it starts, loads, moves shards between nodes or is overloaded (its package merr).
_TRANSIENT_CODES = {1, 2, 4, 8, 101, 103, 106, 400, 401, 500, 501, 503, 600, 601, 901, 902, 903, 904, 905}
_TRANSIENT_STATUS = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}  # of gRPC


def call_with_retry(
    request: Callable[[], Result],
    location: object,
    *,
    retry_seconds: float = RETRY_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Return the result of a request, which is repeated after transient errors, so it must be idempotent.

    Pauses double up to five seconds and vary by half, so that many writers do not return at one moment. Errors of the server
    become an InputError; all others are raised as they are.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

    double = wait_exponential(multiplier=FIRST_PAUSE, max=MAX_PAUSE)
    retrying = Retrying(
        retry=retry_if_exception(is_transient),
        wait=lambda state: double(state) * random.uniform(0.5, 1.5),
        stop=stop_after_delay(retry_seconds),
        sleep=sleep,
        reraise=True,
    )
    try:
        return retrying(request)
    except Exception as error:
        if not is_server_error(error):
            raise
        raise InputError(f"Milvus at {location} failed: {describe_error(error)}.") from error


def is_server_error(error: BaseException) -> bool:
    """Return whether an error came from the server or the connection to it."""
    import grpc
    from pymilvus.exceptions import MilvusException

    return isinstance(error, (MilvusException, grpc.RpcError, ConnectionError))


def is_transient(error: Any) -> bool:
    """Return whether the same request may succeed later."""
    if not is_server_error(error):
        return False
    code = getattr(error, "code", None)
    code = code() if callable(code) else code
    name = getattr(code, "name", None)  # a status of gRPC has one
    return bool(getattr(error, "retriable", False)) or code in _TRANSIENT_CODES or name in _TRANSIENT_STATUS


def describe_error(error: Exception) -> str:
    """Return the message of the server in one line."""
    text = " ".join(str(getattr(error, "message", "") or error).split())
    return text[:300].rstrip(".") or type(error).__name__
