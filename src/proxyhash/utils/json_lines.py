"""JSON Lines files that several processes append to."""

import json
import operator
import os
import re
import zlib
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from proxyhash.utils.atomic_io import DISK_FULL_ADVICE, is_disk_full, make_folder, sync_folder
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import exclusive_lock

_TAIL_BYTES = 1 << 16
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
    try:
        make_folder(path.parent)
        with FileIO(path, "a+") as handle, exclusive_lock(handle):
            _end_last_line(handle)
            _append(handle, line)
        sync_folder(path.parent)  # also of an old file: the process that created it may have been killed before this
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


def _append(handle: FileIO, line: bytes) -> None:
    """Write bytes to the end of a file and sync them; if that fails, the file keeps its size."""
    size, left = handle.seek(0, os.SEEK_END), memoryview(line)
    try:
        while left:
            left = left[handle.write(left) or 0 :]
        os.fsync(handle.fileno())
    except OSError:
        with suppress(OSError):
            handle.truncate(size)
        raise


def _end_last_line(handle: FileIO) -> None:
    """Remove an incomplete last line, or end a complete one that lacks its line break."""
    last = _last_line(handle)
    if not last or last.endswith(b"\n"):
        return
    if _is_json(last):
        _append(handle, b"\n")
    elif _is_json(last[:-1]):  # its line break is damaged
        handle.truncate(handle.seek(0, os.SEEK_END) - 1)
        _append(handle, b"\n")
    else:
        handle.truncate(handle.seek(0, os.SEEK_END) - len(last))


def _last_line(handle: FileIO) -> bytes:
    """Return the last line of a file, read from its end."""
    last, end = b"", handle.seek(0, os.SEEK_END)
    while end and b"\n" not in last[:-1]:
        start = max(0, end - _TAIL_BYTES)
        handle.seek(start)
        last, end = _read_exactly(handle, end - start) + last, start
    return last[last[:-1].rfind(b"\n") + 1 :]


def _read_exactly(handle: FileIO, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := handle.read(size - len(parts))):
        parts += part
    return parts


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):  # also of bytes that are not UTF-8
        return False
    return True
