"""The folder of a model: which files it holds, whether they are whole, and whether it may be replaced."""

import hashlib
import json
from pathlib import Path
from typing import Any

from proxyhash.utils import legacy_names
from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import upgrade_model_metadata

FORMAT = "proxyhash.hasher/1"
CONFIG, WEIGHTS, PROXIES, ONNX = "config.json", "model.safetensors", "proxies.safetensors", "model.onnx"
CALIBRATION = "calibration.json"  # what a distance is worth, if that was measured
METRICS = "metrics.json"  # metrics on held-out queries, if they were saved
CARD = "README.md"  # all of it for people
FILES = {CONFIG, WEIGHTS, PROXIES, ONNX, CALIBRATION, METRICS, CARD, legacy_names.METRICS_FILE}


def check_replaceable(folder: Path) -> None:
    """Raise unless a model may be written to this folder: it is absent, empty, or holds a model and nothing else."""
    if not folder.name or folder.name == "..":
        raise InputError(f"{folder} has no name of its own; give the folder of the model a name.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a model is a folder.")
    held = {child.name for child in folder.iterdir()} if folder.exists() else set()
    if held and (not held <= FILES or _format(folder) != FORMAT):
        raise InputError(f"{folder} holds other things than a model; choose another folder.")


def read_config(folder: Path) -> dict[str, Any]:
    """Return what a model says about itself."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        inside = sorted(child.parent.name for child in folder.glob(f"*/{CONFIG}"))
        hint = f"it has no {CONFIG}" if not inside else f"it holds {', '.join(inside)}, choose {folder / inside[0]}"
        raise InputError(f"{folder} is not a model: {hint}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / CONFIG} cannot be read: {error}.") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(f"{folder} was not written by this version of proxyhash: its format is not {FORMAT}.")
    if isinstance(config.get("record"), dict):
        config["record"] = upgrade_model_metadata(config["record"])
    return config


def fingerprint(folder: Path) -> str:
    """Return 16 digits that change when a model gives other codes: its network, its weights, how it prepares images."""
    try:
        config = read_config(folder)
        facts = {name: config[name] for name in ("backbone", "head", "transform")}
        facts["weights"] = config["sha256"][WEIGHTS]
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder} is not a whole model: {error}.") from error
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _format(folder: Path) -> object:
    try:
        return read_config(folder)["format"]
    except InputError:
        return None


def check_files(folder: Path, sums: dict[str, str]) -> None:
    """Raise unless every file is there as it was written; the ONNX file may be missing, torch does without."""
    for name, expected in sums.items():
        if not (folder / name).is_file():
            if name == ONNX:
                continue
            raise InputError(f"{folder} is not a whole model: {name} is missing.")
        if checksum(folder / name, "sha256") != expected:
            raise InputError(f"{folder / name} is damaged: its checksum differs.")
