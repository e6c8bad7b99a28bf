"""The copy of the model that makes an index self-contained: one folder a model, named by its fingerprint."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.codes.bits import Packed, pack
from proxyhash.index.calibration import FILE as CALIBRATION
from proxyhash.models.storage import fingerprint
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_folder
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

FOLDER = "models"


def load_hasher(model: "Path | str | Hasher", device: str = "cpu") -> "Hasher":
    """Return a hasher from its folder, or the hasher itself; one that does not search by Hamming distance is refused."""
    from proxyhash.models.hasher import Hasher

    hasher = model if isinstance(model, Hasher) else Hasher.load(Path(model), device)
    if hasher.head.metric != "hamming":
        raise InputError(
            f"This model searches by {hasher.head.metric}, and an index only by Hamming distance; use evaluate model."
        )
    return hasher


def keep_copy(hasher: "Hasher", index: Path) -> str:
    """Copy a model into an index, whole or not at all, and return its fingerprint; a copy that is there stays."""
    if hasher.folder is None:  # not from a folder: it must be written to have a fingerprint
        temporary = index / f".{FOLDER}-new"
        hasher.save(temporary)
        try:
            return _keep(temporary, index)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            hasher.folder = None
    return _keep(hasher.folder, index)


def model_folder(index: Path, name: str) -> Path:
    """Return where the copy of a model is."""
    return index / FOLDER / name


def proxy_codes(index: Path, name: str | None) -> Packed | None:
    """Return the signs of a model's proxies (C, bytes): the centres that its codes gather around."""
    path = None if name is None else model_folder(index, name) / "proxies.safetensors"
    return pack(ProxySet.load(path).weights >= 0) if path is not None and path.is_file() else None


def _keep(folder: Path, index: Path) -> str:
    name = fingerprint(folder)
    target = model_folder(index, name)
    if not target.is_dir():
        with atomic_folder(target) as temporary:
            shutil.copytree(folder, temporary, dirs_exist_ok=True)
    elif (folder / CALIBRATION).is_file() and folder.resolve() != target.resolve():  # measured since, or anew
        shutil.copy2(folder / CALIBRATION, target / CALIBRATION)
    return name
