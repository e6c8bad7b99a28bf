"""Messages of bytes between the service and a worker process."""

import socket
import struct
import time
from typing import Literal

import msgspec

from proxyhash.serve.errors import BusyError
from proxyhash.utils.errors import DamagedError, FilterError, InputError

_SIZE = struct.Struct("<Q")
_MIN_SEPARATE = 65_536  # bytes of a message that is sent without being copied behind its size


class Channel:
    """One end of a socket pair.

    An operation takes at most `timeout` seconds, whatever the other side does: a process that is stopped in the middle of a
    message ends it with a TimeoutError, one that died with an EOFError.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Send a message."""
        size = _SIZE.pack(len(message))
        parts = (size + message,) if len(message) < _MIN_SEPARATE else (size, message)
        deadline = _deadline(timeout)
        try:
            for part in parts:
                self._socket.settimeout(_remaining(deadline))
                self._socket.sendall(part)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self, timeout: float | None = None, max_bytes: int | None = None) -> bytearray:
        """Return the next message. One of more than `max_bytes` is an EOFError: nothing that follows it can be read."""
        deadline = _deadline(timeout)
        (size,) = _SIZE.unpack(self._read(_SIZE.size, deadline))
        if max_bytes is not None and size > max_bytes:
            raise EOFError(f"A message has {size:,} bytes, more than {max_bytes:,}.")
        return self._read(size, deadline)

    def close(self) -> None:
        """Close the socket; the other side gets an EOFError."""
        self._socket.close()

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        try:
            while rest:
                self._socket.settimeout(_remaining(deadline))
                count = self._socket.recv_into(rest)
                if not count:
                    raise EOFError("The other process has ended.")
                rest = rest[count:]
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error
        return data


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _remaining(deadline: float | None) -> float | None:
    """Return the seconds until a deadline; TimeoutError if it has passed."""
    if deadline is None:
        return None
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class Failure(msgspec.Struct, frozen=True):
    """An exception of a worker process, as a message."""

    kind: Literal["input", "filter", "damaged", "unavailable", "failure"]
    message: str

    def exception(self) -> Exception:
        """Return the exception that the service raises for it."""
        if self.kind == "unavailable":
            error = BusyError("The index cannot be read at the moment; try again later.")
            error.__cause__ = InputError(self.message)
            return error
        kinds = {"input": InputError, "filter": FilterError, "damaged": DamagedError, "failure": RuntimeError}
        return kinds[self.kind](self.message)
