"""Copies of models inside an index or the cache, one folder each, named by the model's fingerprint."""

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.codes.bits import Packed, pack
from proxyhash.index.calibration import FILE as CALIBRATION
from proxyhash.index.local.store import VersionInfo
from proxyhash.models.device import find_device
from proxyhash.models.encoder import ModelEncoder
from proxyhash.models.hub import local_folder
from proxyhash.models.linear_encoder import LinearVectorEncoder
from proxyhash.models.onnx_encoder import OnnxEncoder
from proxyhash.models.storage import CONFIG, config_sha256, fingerprint
from proxyhash.utils.atomic_io import atomic_folder, atomic_write
from proxyhash.utils.errors import DamagedError, InputError, MissingPackageError

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

MODELS_DIR = "models"


def load_encoder(model: Path | str | ModelEncoder, device: str = "cpu") -> ModelEncoder:
    """Return a model from its folder, or the model itself, if its codes are searched by Hamming distance.

    Torch is not imported if the device is the CPU, and the model has an ONNX file and onnxruntime is installed, or its input
    is vectors and its head one layer.
    """
    if isinstance(model, (OnnxEncoder, LinearVectorEncoder)):
        return model
    if isinstance(model, ModelEncoder):
        return load_hasher(model)
    folder = local_folder(model)
    if find_device(device) == "cpu":
        for kind in (OnnxEncoder, LinearVectorEncoder):
            if kind.can_load(folder):
                return kind.load(folder)
    return load_hasher(folder, device)


def import_hasher() -> "type[Hasher]":
    """Return the class `Hasher`; without torch, raise a MissingPackageError."""
    try:
        from proxyhash.models.hasher import Hasher
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        advice = "pip install 'proxyhash[train]', or pip install onnxruntime if the model has an ONNX file"
        raise MissingPackageError(f"This model cannot be loaded without torch; run {advice}.") from None
    return Hasher


def load_hasher(model: Path | str | ModelEncoder, device: str = "cpu") -> "Hasher":
    """Return a hasher from its folder, or the hasher itself, if its codes are searched by Hamming distance."""
    kind = import_hasher()
    hasher = kind.load(model, device) if isinstance(model, (str, Path)) else model
    if not isinstance(hasher, kind):
        raise InputError(f"A {type(model).__name__} is not a torch network; save it and give its folder.")
    if hasher.head.metric != "hamming":
        raise InputError(
            f"This model searches by {hasher.head.metric}, and an index only by Hamming distance; use evaluate model."
        )
    return hasher


def copy_model(model: ModelEncoder, index: Path) -> str:
    """Copy a model into an index in one step, and return its fingerprint; an existing copy stays."""
    if model.folder is not None:
        return _copy_folder(model.folder, index)
    hasher = load_hasher(model)  # not from a folder: it must be written to have a fingerprint
    temporary = index / f".{MODELS_DIR}-{uuid.uuid4().hex}"
    hasher.save(temporary)
    try:
        return _copy_folder(temporary, index)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        hasher.folder = None


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
    from proxyhash.proxies import ProxySet

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
