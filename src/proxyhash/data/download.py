"""Downloads that can be resumed and are verified, and extraction of archives."""

import http.client
import os
import ssl
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from proxyhash.data.catalog import Archive
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
MAX_EXTRACTED_BYTES = 4 << 30  # the known archives extract to 0.2 GiB


def download(archive: Archive, path: Path, progress: Progress = no_progress) -> None:
    """Download an archive to `path`, which is complete and verified or absent; an incomplete file is kept as `.part`."""
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
    """Append the missing bytes to `part`; a server without range requests sends the whole file again."""
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


def extract_archive(archive: Path, target: Path, progress: Progress = no_progress) -> None:
    """Extract the folder `target.name` of a tar archive to `target`, which is complete or absent."""
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{target.name}-") as temporary:
            _extract_members(archive, Path(temporary), progress)
            inside = Path(temporary) / target.name
            if not inside.is_dir():
                raise InputError(f"{archive} holds no folder {target.name}.")
            if not target.exists():  # another process may have been faster
                inside.replace(target)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".:")  # the other lines are one for each kind of compression
        raise InputError(f"{archive} cannot be extracted: {reason}.") from error
    progress(f"extracting {archive.name}", 1.0)


def _extract_members(archive: Path, folder: Path, progress: Progress) -> None:
    """Extract all members, or none if one is unsafe: a device, or a path or link that leads out of the folder."""
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            try:
                tarfile.data_filter(member, str(folder))
            except tarfile.FilterError as error:
                raise InputError(f"{archive} was refused: its member {member.name} is unsafe.") from error
        if sum(member.size for member in members) > MAX_EXTRACTED_BYTES:
            raise InputError(f"{archive} would extract to more than {MAX_EXTRACTED_BYTES >> 30} GiB and was refused.")
        for number, member in enumerate(members):
            progress(f"extracting {archive.name}", number / len(members))
            tar.extract(member, folder, filter="data")
