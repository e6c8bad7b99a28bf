"""Unpacking an archive that came from outside: plain files only, inside one folder, all or nothing."""

import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

MAX_EXTRACTED_BYTES = 4 << 30  # bytes; the known archives unpack to 0.2 GiB


def extract_archive(archive: Path, target: Path, progress: Progress = no_progress) -> None:
    """Unpack the folder `target.name` of a tar archive to `target`, which is whole or absent."""
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{target.name}-") as temporary:
            _unpack_all(archive, Path(temporary), progress)
            inside = Path(temporary) / target.name
            if not inside.is_dir():
                raise InputError(f"{archive} holds no folder {target.name}.")
            if not target.exists():  # another process may have been faster
                inside.replace(target)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".:")  # below it stands what each kind of compression has to say
        raise InputError(f"{archive} cannot be unpacked: {reason}.") from error
    progress(f"unpacking {archive.name}", 1.0)


def _unpack_all(archive: Path, folder: Path, progress: Progress) -> None:
    with tarfile.open(archive) as tar:
        members = [_checked(member, archive) for member in tar if not member.isdir()]
        if sum(member.size for member in members) > MAX_EXTRACTED_BYTES:
            raise InputError(f"{archive} would unpack to more than {MAX_EXTRACTED_BYTES >> 30} GiB and was refused.")
        for number, member in enumerate(members):
            progress(f"unpacking {archive.name}", number / len(members))
            _write(tar, member, folder)


def _checked(member: tarfile.TarInfo, archive: Path) -> tarfile.TarInfo:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not member.isfile():
        raise InputError(f"{archive} was refused: its member {member.name} is a link or lies outside its folder.")
    return member


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Copy the bytes of a member, and nothing else of it: no owner, no mode, no time."""
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # it is a plain file
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
