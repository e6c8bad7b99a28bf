"""JSON Lines files that several processes append to."""

import json
import operator
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from proxyhash.utils.atomic_io import DISK_FULL_ADVICE, is_disk_full, sync_folder
from proxyhash.utils.errors import InputError

_NAME = b"crc32"
_CHECKSUM = re.compile(rb', "([^"]{5})": (\d{1,10})\}\s*\Z')


def dump_json_line(content: dict[str, Any]) -> bytes:
    """Return an object as one line, whose last field is the CRC-32 of the line without that field.

    >>> dump_json_line({"epoch": 1})
    b'{"epoch": 1, "crc32": 2492569672}\\n'
    """
    line = json.dumps(content).encode()
    return line[:-1] + f', "crc32": {zlib.crc32(line)}}}\n'.encode()


def parse_json_line(line: bytes) -> Any:
    """Return the content of a line; a checksum is checked and left out. Lines of earlier releases have none.

    Raises
    ------
    InputError
        If the line is not JSON, or does not match its checksum.
    """
    found = _CHECKSUM.search(line)
    plain = line
    if found is not None and sum(map(operator.ne, found[1], _NAME)) <= 1:  # also if its name is damaged
        plain = line[: found.start()] + b"}"
        if found[1] != _NAME or zlib.crc32(plain) != int(found[2]):
            raise InputError("it does not match its checksum")
    try:
        return json.loads(plain)
    except RecursionError:
        raise InputError("it is nested too deeply") from None
    except ValueError as error:  # also of bytes that are not UTF-8, and of integers with too many digits
        raise InputError(" ".join(str(error).split())[:200]) from None


def append_json_line(path: Path, content: dict[str, Any]) -> None:
    """Append one object and sync it to disk.

    A lock keeps other processes from writing meanwhile. An incomplete last line of a killed process is removed.
    """
    line = dump_json_line(content)
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as handle, _exclusive(handle):
            _end_last_line(handle)
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())
        if is_new:
            sync_folder(path.parent)
    except OSError as error:
        reason = DISK_FULL_ADVICE if is_disk_full(error, path.parent) else error.strerror
        raise InputError(f"Cannot write {path}: {reason}.") from error


def split_json_lines(content: bytes) -> list[bytes]:
    """Return the lines of a file; an incomplete last line is left out."""
    *lines, last = content.split(b"\n")
    for complete in (last, last[:-1]):  # without its line break, or with a damaged one
        if _is_json(complete):
            return [*lines, complete]
    return lines


@contextmanager
def _exclusive(handle: IO[bytes]) -> Iterator[None]:
    """Hold an exclusive lock on an open file; closing the file releases it too."""
    if os.name != "posix":  # no advisory locks: each append is one write
        yield
        return
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _end_last_line(handle: IO[bytes]) -> None:
    """Remove an incomplete last line, or end a complete one that lacks its line break."""
    handle.seek(0)
    start, last = 0, b""
    for line in handle:
        start, last = start + len(last), line
    if last.endswith(b"\n") or not last:
        return
    if _is_json(last):
        handle.write(b"\n")
    elif _is_json(last[:-1]):  # its line break is damaged
        handle.truncate(start + len(last) - 1)
        handle.write(b"\n")
    else:
        handle.truncate(start)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):  # also of bytes that are not UTF-8
        return False
    return True
