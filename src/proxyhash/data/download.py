"""Downloads that can be interrupted, continued, and trusted once they are there."""

import http.client
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO, cast

from proxyhash.data.catalog import Archive
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte


def download(archive: Archive, path: Path, progress: Progress = no_progress) -> None:
    """Bring an archive to `path`, which is whole and verified or absent; what arrived of it waits beside it, as `.part`."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _continue(archive, part, progress)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise InputError(f"{archive.url} could not be downloaded ({_reason(error)}).") from error
    except OSError as error:
        raise InputError(f"Cannot write {part}: {error.strerror or error}.") from error
    if not archive.matches(part):
        part.unlink()
        raise InputError(f"What {archive.url} sent has the wrong checksum and was deleted.")
    part.replace(path)


def _continue(archive: Archive, part: Path, progress: Progress) -> None:
    """Append to `part` what is missing of it; a server that cannot send the rest sends all."""
    have = part.stat().st_size if part.exists() else 0
    if archive.size and have >= archive.size:
        return
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        continues = have and response.status == http.HTTPStatus.PARTIAL_CONTENT
        size = archive.size or int(response.headers.get("Content-Length", 0)) + (have if continues else 0)
        with part.open("ab" if continues else "wb") as handle:
            _copy(cast("BinaryIO", response), handle, archive.name, size, progress)
            os.fsync(handle.fileno())
    if part.stat().st_size < size:
        raise ConnectionError("the connection ended early; the same command continues where it stopped")


def _reason(error: Exception) -> object:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    reason = getattr(error, "reason", None) or error
    return getattr(reason, "strerror", None) or reason


def _copy(source: BinaryIO, target: BinaryIO, name: str, size: int, progress: Progress) -> None:
    while target.tell() <= size and (block := source.read(CHUNK)):  # more than it should be is wrong anyway
        target.write(block)
        progress(f"downloading {name}", min(1.0, target.tell() / max(1, size)))
