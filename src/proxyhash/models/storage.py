"""Files of a model folder, their checksums and the fingerprint of a model."""

import hashlib
import json
from pathlib import Path
from typing import Any

from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import (
    METRICS_FILE,
    MODEL_FORMAT,
    model_fingerprint_fields,
    upgrade_model_config,
    upgrade_model_metadata,
)

FORMAT = "proxyhash.hasher/2"
CONFIG, WEIGHTS, PROXIES, ONNX = "config.json", "model.safetensors", "proxies.safetensors", "model.onnx"
CALIBRATION = "calibration.json"  # the precision of matches by distance
METRICS = "metrics.json"  # metrics on held-out queries, if they were saved
CARD = "README.md"
FILES = {CONFIG, WEIGHTS, PROXIES, ONNX, CALIBRATION, METRICS, CARD, METRICS_FILE}


def check_replaceable(folder: Path) -> None:
    """Raise unless a model may be written to this folder: it is absent, empty, or holds a model and nothing else."""
    if not folder.name or folder.name == "..":
        raise InputError(f"{folder} has no name of its own; give the folder of the model a name.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a model is a folder.")
    held = {child.name for child in folder.iterdir()} if folder.exists() else set()
    if held and (not held <= FILES or not _is_model(folder)):
        raise InputError(f"{folder} holds other things than a model; choose another folder.")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model, with today's names."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        inside = sorted(child.parent.name for child in folder.glob(f"*/{CONFIG}"))
        hint = f"it has no {CONFIG}" if not inside else f"it holds {', '.join(inside)}, choose {folder / inside[0]}"
        raise InputError(f"{folder} is not a model: {hint}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / CONFIG} cannot be read: {error}.") from error
    if not isinstance(config, dict) or config.get("format") not in (FORMAT, MODEL_FORMAT):
        raise InputError(f"{folder} was not written by this version of proxyhash: its format is not {FORMAT}.")
    if isinstance(config.get("record"), dict):
        config["record"] = upgrade_model_metadata(config["record"])
    return upgrade_model_config(config)


def config_sha256(folder: Path) -> str:
    """Return the SHA-256 of config.json, which lists all other files: unlike the fingerprint, it covers the ONNX file."""
    return checksum(folder / CONFIG, "sha256")


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits of the network, its weights and its transform: all that decides the codes."""
    try:
        config = read_config(folder)
        hashed = {**model_fingerprint_fields(config), "weights": config["sha256"][WEIGHTS]}
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is not a whole model: {error}.") from error
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]


def _is_model(folder: Path) -> bool:
    try:
        read_config(folder)
    except InputError:
        return False
    return True


def check_files(folder: Path, sums: dict[str, str]) -> None:
    """Raise unless every file is there as it was written; the ONNX file may be missing, torch does without."""
    for name, expected in sums.items():
        if not (folder / name).is_file():
            if name == ONNX:
                continue
            raise InputError(f"{folder} is not a whole model: {name} is missing.")
        if checksum(folder / name, "sha256") != expected:
            raise InputError(f"{folder / name} is damaged: its checksum differs.")
