"""Reader of tar files in the layout of webdataset: cat7.jpg beside cat7.cls with its class."""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.crop import CropBox
from proxyhash.data.decoding import EXTENSIONS, Fit, NamedBytes, Pixels, decode_crop, decode_pixels, decode_square
from proxyhash.data.images import Indices
from proxyhash.data.readers.listing import NOT_UTF8, OTHER_KIND, SPECIAL, is_utf8
from proxyhash.data.skipped import SkippedItems
from proxyhash.utils.errors import InputError

LABEL = ".cls"
REPEATED = "second file of a name in a tar file"
LINK = "link in a tar file"


@dataclass(frozen=True)
class TarMember:
    """Name, offset and size of a file in a tar file."""

    name: str
    start: int
    size: int


@dataclass(frozen=True)
class TarImages:
    """The images of a tar file, in its order; nothing is extracted."""

    path: Path
    members: tuple[TarMember, ...]

    def __len__(self) -> int:
        """Return N."""
        return len(self.members)

    def key(self, index: int) -> str:
        """Return the name of the tar file and the name inside."""
        return f"{self.path.name}/{self.members[index].name}"

    def read(self, index: int) -> Pixels:
        """Decode the whole image (H, W, 3)."""
        return decode_pixels(self._bytes(index))

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Decode the image as (side, side, 3)."""
        return decode_square(self._bytes(index), side, fit)

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Decode a crop of the image to `out` (size, size, 3)."""
        decode_crop(self._bytes(index), box, out)

    def pixels_in_memory(self, indices: Indices) -> None:  # noqa: ARG002
        """Return None: files are decoded one by one."""
        return

    def fingerprint(self) -> str:
        """Hash name, size and time of the tar file."""
        return tar_fingerprint(self.path)

    def _bytes(self, index: int) -> NamedBytes:
        member = self.members[index]
        return NamedBytes(_read(self.path, member), self.key(index))


def tar_fingerprint(path: Path) -> str:
    """Return digits that change when a tar file does."""
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    text = f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def open_tar(path: Path, skipped: SkippedItems) -> tuple[TarImages, list[tuple[str, ...]]]:
    """List a tar file by its headers; return its images, and each one's class if there is a .cls file beside it.

    Names become keys of an index, so names that are not UTF-8 and repeated names (of which the first file is taken) are
    counted and left out before anything is encoded. Names are never used as paths: nothing is extracted.
    """
    members = _members(path)
    files = [TarMember(member.name, member.offset_data, member.size) for member in members if member.isfile()]
    images = tuple(_usable_images(path, members, skipped))
    classes = {_sample(file.name): file for file in files if file.name.endswith(LABEL)}
    labels = [_label(path, classes.get(_sample(image.name))) for image in images]
    return TarImages(path, images), labels


def _members(path: Path) -> list[tarfile.TarInfo]:
    try:
        with tarfile.open(path, "r:") as tar:
            members, end = [], -1
            for member in tar:
                if tar.offset <= end:  # a negative size would make tarfile read the same headers for ever
                    raise tarfile.ReadError("a header points backward")
                members.append(member)
                end = tar.offset
            return members
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} is not a tar file that can be read, without compression: {reason}.") from error


def _usable_images(path: Path, members: Iterable[tarfile.TarInfo], skipped: SkippedItems) -> Iterator[TarMember]:
    """Yield the images of a tar file that can be items of an index."""
    seen: set[str] = set()
    for member in members:
        key = f"{path.name}/{member.name}"
        if member.isdir() or member.name.endswith(LABEL):
            continue
        if PurePosixPath(member.name).suffix.lower() not in EXTENSIONS:
            skipped.ignore(OTHER_KIND, key)
        elif not is_utf8(key):
            skipped.add(NOT_UTF8, key)
        elif not member.isfile() or member.issparse():  # a sparse file may claim any size
            skipped.add(LINK if member.issym() or member.islnk() else SPECIAL, key)
        elif member.name in seen:
            skipped.add(REPEATED, key)
        else:
            seen.add(member.name)
            yield TarMember(member.name, member.offset_data, member.size)


def _sample(name: str) -> str:
    """Return what the files of one sample have in common: all up to the first dot of the file's name."""
    path = PurePosixPath(name)
    return str(path.parent / path.name.partition(".")[0])


def _label(path: Path, member: TarMember | None) -> tuple[str, ...]:
    text = "" if member is None or member.size > 4096 else _read(path, member).decode("utf-8", "replace").strip()
    return (text,) if text else ()


def _read(path: Path, member: TarMember) -> bytes:
    with path.open("rb") as handle:
        handle.seek(member.start)
        return handle.read(member.size)
