"""What happens, as lines of JSON on standard error: for machines to read, and without anything that is secret."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import IO

import msgspec


class Log:
    """Writes lines. Headers and bodies never reach it, so that no token and no upload can."""

    def __init__(self, stream: IO[str] | None = None, *, requests: bool = True) -> None:
        self._stream, self.requests = stream or sys.stderr, requests

    def write(self, event: str, **facts: object) -> None:
        """Write one line."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"time": time, "event": event, **facts}, enc_hook=str).decode()
        self._stream.write(line + "\n")
        self._stream.flush()

    def request(self, number: int, method: str, path: str, status: int, seconds: float, size: int) -> None:
        """Write what became of a request; the query is left out, as it can hold what people look for."""
        if self.requests or status == 500:
            milliseconds = round(1000 * seconds, 2)
            self.write("request", id=number, method=method, path=path, status=status, ms=milliseconds, bytes=size)

    def failure(self, number: int, error: BaseException) -> None:
        """Write an error that nobody expected, with where it came from."""
        self.write("failure", id=number, error=f"{type(error).__name__}: {error}", trace=places(error))


def places(error: BaseException) -> list[str]:
    """Return where an error came from, the outermost first."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]


class ServerHandler(logging.Handler):
    """Turns what the HTTP server logs into our lines."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        error = record.exc_info[1] if record.exc_info else None
        more = {} if error is None else {"error": f"{type(error).__name__}: {error}"}
        self._log.write("server", level=record.levelname.lower(), message=record.getMessage(), **more)
