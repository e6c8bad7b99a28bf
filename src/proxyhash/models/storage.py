"""Files of a model folder, their checksums and the fingerprint of a model."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from proxyhash.data.transforms import Transform
from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.config import check_table, from_mapping
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import REQUIRES, check_format, read_json
from proxyhash.utils.legacy_names import (
    METRICS_FILE,
    MODEL_FORMAT,
    model_fingerprint_fields,
    upgrade_model_config,
    upgrade_model_metadata,
)
from proxyhash.utils.validation import shorten

FORMAT = "proxyhash.hasher/3"
FORMATS = (FORMAT, "proxyhash.hasher/2", MODEL_FORMAT)
VECTOR_FORMAT = "proxyhash.vector-hasher/1"  # of a model whose input is vectors
CONFIG, WEIGHTS, PROXIES, ONNX = "config.json", "model.safetensors", "proxies.safetensors", "model.onnx"
PROBE = "probe.safetensors"  # outputs of the network, to check the ONNX file
CALIBRATION = "calibration.json"  # the precision of matches by distance
MODULE_PREFIX = "module/"  # of the names of wrapped networks, which no registered backbone has
BACKBONE_CONFIG = "backbone_config"  # key of config.json: input and features of a wrapped network
METRICS = "metrics.json"  # metrics on held-out queries, if they were saved
CARD = "README.md"
LISTED = (WEIGHTS, PROXIES, ONNX, PROBE)  # files with a checksum in config.json
FILES = {CONFIG, *LISTED, CALIBRATION, METRICS, CARD, METRICS_FILE}
MAX_IMAGE_SIZE = 4096  # a batch of larger images would not fit into memory

_WRONG_CONTENT = (KeyError, AttributeError, TypeError, RuntimeError, OverflowError, ZeroDivisionError)
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    path = folder / CONFIG
    if not path.is_file():
        inside = sorted(child.parent.name for child in folder.glob(f"*/{CONFIG}"))
        hint = f"it has no {CONFIG}" if not inside else f"it holds {', '.join(inside)}, choose {folder / inside[0]}"
        raise InputError(f"{folder} is not a model: {hint}.")
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a file of the format {FORMAT}.")
    if takes_vectors(config):
        check_format(path, config.get("format"), (VECTOR_FORMAT,), config.get(REQUIRES))
        return config
    check_format(path, config.get("format"), FORMATS, config.get(REQUIRES))
    try:
        if isinstance(config.get("record"), dict):
            config["record"] = upgrade_model_metadata(config["record"])
        return upgrade_model_config(config)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _unreadable(folder, error) from error


def takes_vectors(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is that of a model whose input is vectors, of this release or a later one."""
    return str(config.get("format")).startswith(VECTOR_FORMAT.partition("/")[0] + "/")


def vector_width(folder: Path) -> int | None:
    """Return the number of values of the vectors that a model takes, without importing torch; None if it takes images."""
    config = read_config(folder)
    if not takes_vectors(config):
        return None
    head = config.get("head")
    width = head.get("in_features") if isinstance(head, dict) else None
    if type(width) is not int or width < 1:
        raise InputError(f"{folder / CONFIG}: head.in_features must be a whole number from 1 on, not {shorten(width)}.")
    return width


def config_sha256(folder: Path) -> str:
    """Return the SHA-256 of config.json, which lists all other files: unlike the fingerprint, it covers the ONNX file."""
    return checksum(folder / CONFIG, "sha256")


def image_size(config: dict[str, Any], folder: Path) -> int:
    """Return the input size of a configuration, after checks of all sizes of its transform."""
    transform = config.get("transform")
    if not isinstance(transform, dict):
        raise InputError(f"{folder / CONFIG}: transform must be a table, not {shorten(transform)}.")
    for name in ("size", "side"):
        size = transform.get(name)
        if type(size) is not int or not 1 <= size <= MAX_IMAGE_SIZE:
            limits = f"a whole number from 1 to {MAX_IMAGE_SIZE}"
            raise InputError(f"{folder / CONFIG}: transform.{name} must be {limits}, not {shorten(size)}.")
    found: int = transform["size"]
    return found


def read_transform(config: dict[str, Any], folder: Path) -> Transform:
    """Return the transform of a configuration."""
    image_size(config, folder)
    return from_mapping(Transform, config["transform"], owner=f"{folder / CONFIG}: transform")


def read_class_names(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Return the names of the classes or tags of a configuration."""
    names = config["class_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{folder / CONFIG}: class_names must be a list of names.")
    return tuple(names)


def read_metadata(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the metadata of a configuration."""
    metadata = config["metadata"]
    check_table(f"{folder / CONFIG}: metadata", metadata)
    return dict(metadata)


@contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Raise an InputError for whatever wrong content of a model's files leads to."""
    try:
        yield
    except InputError:
        raise
    except (OSError, SafetensorError, ValueError, *_WRONG_CONTENT) as error:
        raise _unreadable(folder, error) from error


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits of the network, its weights and its input: all that decides the codes."""
    try:
        config = read_config(folder)
        if takes_vectors(config):
            fields = {"head": config["head"], "normalize": config["normalize"]}
        else:
            fields = model_fingerprint_fields(config)
        hashed = {**fields, "weights": config["sha256"][WEIGHTS]}
        if BACKBONE_CONFIG in config:  # only models of wrapped networks have it
            hashed[BACKBONE_CONFIG] = config[BACKBONE_CONFIG]
        return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(folder, error) from error


def _is_model(folder: Path) -> bool:
    try:
        read_config(folder)
    except InputError:
        return False
    return True


def check_files(folder: Path, sums: object) -> None:
    """Raise unless the folder holds the listed files as they were written, and no network that is not listed.

    The ONNX file may be missing, with its probe: torch does without.
    """
    for name, expected in _listed(folder, sums).items():
        if not (folder / name).is_file():
            if name == ONNX or (name == PROBE and not (folder / ONNX).is_file()):
                continue
            raise InputError(f"{folder} is not a whole model: {name} is missing.")
        if checksum(folder / name, "sha256") != expected:
            raise InputError(f"{folder / name} is damaged: its checksum differs.")


def _listed(folder: Path, sums: object) -> dict[str, str]:
    """Return the checksums by file; they are from a file that anyone may have written, so names are never used as paths."""
    if not isinstance(sums, dict) or WEIGHTS not in sums:
        raise InputError(f"{folder} is not a whole model: {CONFIG} has no checksum of {WEIGHTS}.")
    for name, expected in sums.items():
        if name not in LISTED:
            raise InputError(f"{folder / CONFIG} lists {shorten(name)}, which is not a file of a model.")
        if not isinstance(expected, str) or not _SHA256.fullmatch(expected):
            raise InputError(f"{folder / CONFIG} has no valid checksum of {name}.")
    for name in LISTED:
        if name not in sums and (folder / name).exists():
            raise InputError(f"{folder / name} is not listed in {CONFIG}; delete the file, or save the model again.")
    return sums


def _unreadable(folder: Path, error: Exception) -> InputError:
    reason = f"{CONFIG} lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]
    return InputError(f"{folder} is not a model that can be read: {reason}.")
