"""Unpacking an archive that came from outside: plain files only, inside one folder, all or nothing."""

import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from proxyhash.support.errors import InputError
from proxyhash.support.progress import Progress, silent

MAX_UNPACKED = 4 << 30  # bytes; the known archives unpack to 0.2 GiB


def unpack(archive: Path, target: Path, progress: Progress = silent) -> None:
    """Unpack the folder `target.name` of a tar archive to `target`, which is whole or absent."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{target.name}-") as temporary:
        try:
            with tarfile.open(archive) as tar:
                members = [_checked(member, archive) for member in tar if not member.isdir()]
                if sum(member.size for member in members) > MAX_UNPACKED:
                    raise InputError(f"{archive} would unpack to more than {MAX_UNPACKED >> 30} GiB and was refused.")
                for number, member in enumerate(members):
                    progress(f"unpacking {archive.name}", number / len(members))
                    _write(tar, member, Path(temporary))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InputError(f"{archive} cannot be unpacked: {error}.") from error
        inside = Path(temporary) / target.name
        if not inside.is_dir():
            raise InputError(f"{archive} holds no folder {target.name}.")
        inside.replace(target) if not target.exists() else shutil.rmtree(inside)
    progress(f"unpacking {archive.name}", 1.0)


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
