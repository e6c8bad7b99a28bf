"""Durable counter of commits.

SQLite drops the end of its write-ahead log silently if that is damaged. The counter is written after each commit and before
the commit is acknowledged, so that an index that lost commits is refused.
"""

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from proxyhash.utils.atomic_io import name_new_file, umask
from proxyhash.utils.errors import DamagedError, IndexChangedError, InputError
from proxyhash.utils.locks import exclusive_lock

COMMITS_FILE = "commits"
_RECORD = struct.Struct("<8s32sQ")  # magic, id of the index, generation; followed by their CRC-32
_MAGIC = b"PXCOMMIT"
_SLOT_BYTES = 4096  # a write that is torn damages one of two slots; the other holds the generation before
_CHECKSUM = struct.Struct("<I")


class CommitCount(NamedTuple):
    """The last acknowledged generation of an index."""

    index_id: str
    generation: int


def read_commits(folder: Path) -> CommitCount | None:
    """Return the counter in the folder of an index, None if it has none.

    Raises
    ------
    DamagedError
        If neither slot of the file is intact.
    """
    path = folder / COMMITS_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    found = _newest(content)
    if found is None:
        raise DamagedError(
            f"{path} is damaged, so that lost commits would not be noticed; restore a backup, or extract what is intact "
            f"with: proxyhash index salvage {folder} NEW."
        )
    return found


def write_commits(folder: Path, count: CommitCount) -> None:
    """Raise the counter to a generation and sync it to disk; a larger one stays."""
    path = folder / COMMITS_FILE
    try:
        if not path.exists():
            _create(path, count)
        with path.open("rb+") as handle, exclusive_lock(handle):
            last = _newest(handle.read())
            if last is not None and last.index_id != count.index_id:
                raise IndexChangedError(replaced_message(folder))
            if last is not None and last.generation >= count.generation:
                return
            handle.seek(count.generation % 2 * _SLOT_BYTES)
            handle.write(_to_bytes(count))
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}; the last commit is safe.") from error


def replaced_message(folder: Path) -> str:
    """Return the sentence about a commit that later searches do not see."""
    return f"{folder} was replaced by another index during the last commit; run it again."


def _create(path: Path, count: CommitCount) -> None:
    """Create the file with both slots, complete or absent; one that another process has just created stays."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as handle:
        temporary = Path(handle.name)
        temporary.chmod(0o666 & ~umask())
        handle.write(_to_bytes(count).ljust(_SLOT_BYTES, b"\0") + _to_bytes(count))
        handle.flush()
        os.fsync(handle.fileno())
    try:
        with suppress(FileExistsError):
            name_new_file(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_bytes(count: CommitCount) -> bytes:
    record = _RECORD.pack(_MAGIC, count.index_id.encode(), count.generation)
    return record + _CHECKSUM.pack(zlib.crc32(record))


def _newest(content: bytes) -> CommitCount | None:
    """Return the larger of the two slots, None if both are damaged."""
    found = [_from_bytes(content[slot * _SLOT_BYTES :]) for slot in (0, 1)]
    return max((count for count in found if count is not None), key=lambda count: count.generation, default=None)


def _from_bytes(content: bytes) -> CommitCount | None:
    record, checksum = content[: _RECORD.size], content[_RECORD.size : _RECORD.size + _CHECKSUM.size]
    if len(checksum) < _CHECKSUM.size or _CHECKSUM.unpack(checksum)[0] != zlib.crc32(record):
        return None
    magic, index_id, generation = _RECORD.unpack(record)
    return CommitCount(index_id.decode("ascii", "replace"), generation) if magic == _MAGIC else None
