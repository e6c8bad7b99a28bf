"""What an installation has: versions, devices, threads, caches, disk, optional parts and what to type for others."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from proxyhash.utils.environment import machine, versions
from proxyhash.utils.jit import private_cache_folder
from proxyhash.utils.parallel import available_threads
from proxyhash.utils.paths import cache_root

LITTLE = 2 << 30  # bytes of free disk below which a download or an index may not fit
_SHARED = ("all", "dev")  # extras that only gather others
PURPOSES = {
    "train": "networks: training and encoding",
    "digits": "handwritten digits for the demo",
    "onnx": "encoding on a CPU, several times faster",
    "pretrained": "ImageNet weights of EfficientNet-Lite",
    "timm": "a thousand more image networks",
    "approximate": "the index's approximate mode",
    "hub": "models that others share",
    "milvus": "an index on a Milvus server",
    "milvus-lite": "Milvus in a file",
    "serve": "search by HTTP and in a browser",
    "docs": "the documentation as a site",
    "tensorboard": "curves of a training run",
}


@dataclass(frozen=True)
class Part:
    """An optional part: what it is for, which of its packages are here, and what to type for those that are not."""

    name: str
    purpose: str
    installed: dict[str, str]
    missing: tuple[str, ...]

    @property
    def advice(self) -> str | None:
        """Return what to type."""
        return f"pip install 'proxyhash[{self.name}]'" if self.missing else None


def examine(here: Path) -> dict[str, Any]:
    """Return everything as facts for JSON; `here` is the folder whose disk is meant."""
    facts: dict[str, Any] = {"versions": versions(), "machine": machine(), "devices": devices(), "threads": threads()}
    facts |= {"caches": caches(), "disk": {str(place): free_bytes(place) for place in (here, cache_root())}}
    facts["parts"] = [{**vars(part), "advice": part.advice} for part in parts()]
    facts["warnings"] = list(warnings(facts))
    return facts


def devices() -> list[str]:
    """Return where networks can run."""
    if _version("torch") is None:
        return []
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{number} ({torch.cuda.get_device_name(number)})" for number in range(count))]


def threads() -> dict[str, Any]:
    """Return how many cores may be used, and what was said about that."""
    said = {
        name: os.environ[name] for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_NUM_THREADS") if name in os.environ
    }
    return {"cores": available_threads(), **said}


def caches() -> dict[str, Any]:
    """Return where things are kept between runs, and how many bytes they take."""
    root = cache_root()
    found = {child.name: _bytes(child) for child in sorted(root.iterdir()) if child.is_dir()} if root.is_dir() else {}
    return {"folder": str(root), "bytes": found, "compiled": private_cache_folder() is not None}


def parts() -> list[Part]:
    """Return the optional parts that the installed package declares."""
    needs: dict[str, list[str]] = {}
    for line in metadata.requires("proxyhash") or []:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package and extra[1] not in _SHARED and package[0] != "proxyhash":
            needs.setdefault(extra[1], []).append(package[0])
    return [_part(name, packages) for name, packages in needs.items()]


def warnings(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what a person should know, each with what to do."""
    if not facts["caches"]["compiled"]:
        folder = facts["caches"]["folder"]
        yield f"{folder} is not private to you, so compiled code is not kept: set PROXYHASH_CACHE to a folder of your own."
    for place, free in facts["disk"].items():
        if free is not None and free < LITTLE:
            yield f"{place} has {free / 2**30:.1f} GiB left: make room before a training or a download."
    if not facts["devices"]:
        yield "Without torch there are no networks: pip install 'proxyhash[train]'."


def free_bytes(place: Path) -> int | None:
    """Return the free space of the disk that a path is, or would be, on."""
    there = next((parent for parent in (place.absolute(), *place.absolute().parents) if parent.exists()), None)
    return None if there is None else shutil.disk_usage(there).free


def _part(name: str, packages: list[str]) -> Part:
    found = {package: _version(package) for package in packages}
    installed = {package: version for package, version in found.items() if version is not None}
    return Part(name, PURPOSES.get(name, ""), installed, tuple(p for p, version in found.items() if version is None))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _bytes(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(base) / name).lstat().st_size
            except OSError:  # gone meanwhile
                continue
    return total
