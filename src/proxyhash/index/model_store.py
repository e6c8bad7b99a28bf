"""Copies of models inside an index or the cache, one folder each, named by the model's fingerprint."""

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.codes.bits import Packed, pack
from proxyhash.index.calibration import FILE as CALIBRATION
from proxyhash.index.local.store import VersionInfo
from proxyhash.models.storage import CONFIG, config_sha256, fingerprint
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_folder, atomic_write
from proxyhash.utils.errors import DamagedError, InputError

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

MODELS_DIR = "models"


def load_hasher(model: "Path | str | Hasher", device: str = "cpu") -> "Hasher":
    """Return a hasher from its folder, or the hasher itself, if its codes are searched by Hamming distance."""
    from proxyhash.models.hasher import Hasher

    hasher = model if isinstance(model, Hasher) else Hasher.load(Path(model), device)
    if hasher.head.metric != "hamming":
        raise InputError(
            f"This model searches by {hasher.head.metric}, and an index only by Hamming distance; use evaluate model."
        )
    return hasher


def copy_model(hasher: "Hasher", index: Path) -> str:
    """Copy a model into an index in one step, and return its fingerprint; an existing copy stays."""
    if hasher.folder is None:  # not from a folder: it must be written to have a fingerprint
        temporary = index / f".{MODELS_DIR}-{uuid.uuid4().hex}"
        hasher.save(temporary)
        try:
            return _copy_folder(temporary, index)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            hasher.folder = None
    return _copy_folder(hasher.folder, index)


def model_dir(index: Path, name: str) -> Path:
    """Return the folder of a model's copy."""
    return index / MODELS_DIR / name


def check_model(folder: Path, info: VersionInfo) -> None:
    """Raise a DamagedError unless a folder holds the configuration of a version's model, as it was stored."""
    if info.config_sha256 is not None and config_sha256(folder) != info.config_sha256:
        raise DamagedError(
            f"{folder / CONFIG} is damaged: its checksum differs from the one in the index; restore a backup."
        )
    if fingerprint(folder) != info.model:
        raise DamagedError(f"The model in {folder} is another one than its name says; restore a backup.")


def proxy_codes(index: Path, name: str | None) -> Packed | None:
    """Return the binarized proxies of a model (C, bytes), around which its codes cluster; None if it has none."""
    path = None if name is None else model_dir(index, name) / "proxies.safetensors"
    return pack(ProxySet.load(path).weights >= 0) if path is not None and path.is_file() else None


def _copy_folder(folder: Path, index: Path) -> str:
    name = fingerprint(folder)
    target = model_dir(index, name)
    if not target.is_dir():
        with atomic_folder(target) as temporary:
            shutil.copytree(folder, temporary, dirs_exist_ok=True)
    elif (folder / CALIBRATION).is_file() and folder.resolve() != target.resolve():  # calibrated since
        with atomic_write(target / CALIBRATION) as temporary:
            shutil.copyfile(folder / CALIBRATION, temporary)
    return name
