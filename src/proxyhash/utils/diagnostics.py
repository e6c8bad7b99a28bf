"""Diagnostics of an installation: versions, devices, threads, caches, free disk space, optional packages."""

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

LOW_DISK_BYTES = 2 << 30  # a download or an index may not fit into less
PURPOSES = {
    "train": "networks: training and encoding",
    "digits": "handwritten digits for the demo",
    "sklearn": "encoders of vectors in pipelines and grid searches",
    "onnx": "encoding on a CPU, several times faster",
    "pretrained": "ImageNet weights of EfficientNet-Lite",
    "timm": "a thousand more image networks",
    "approximate": "the approximate mode of the index, and files of faiss",
    "parquet": "parquet files",
    "usearch": "files of usearch",
    "hub": "models from the Hugging Face Hub",
    "datasets": "datasets of Hugging Face",
    "integrations": "recipes for sentence-transformers and Lightning",
    "milvus": "an index on a Milvus server",
    "milvus-lite": "Milvus in a file",
    "serve": "search by HTTP and in a browser",
    "docs": "the documentation as a site",
    "tensorboard": "training curves",
}
_COMBINED = ("all", "dev")  # extras that only list others
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Extra:
    """An optional extra of the package: its purpose, and its packages that are installed or missing."""

    name: str
    purpose: str
    installed: dict[str, str]
    missing: tuple[str, ...]

    @property
    def install_command(self) -> str | None:
        """Return the command that installs the missing packages, None if there are none."""
        return f"pip install 'proxyhash[{self.name}]'" if self.missing else None


def collect_diagnostics(folder: Path) -> dict[str, Any]:
    """Return all diagnostics as JSON values; free disk space is that of `folder` and of the cache."""
    found: dict[str, Any] = {
        "versions": versions(),
        "machine": machine(),
        "devices": list_devices(),
        "threads": describe_threads(),
        "caches": describe_caches(),
        "disk": {str(path): free_bytes(path) for path in (folder, cache_root())},
        "extras": [{**vars(extra), "install_command": extra.install_command} for extra in list_extras()],
    }
    return found | {"warnings": list(_warnings(found))}


def list_devices() -> list[str]:
    """Return the devices that networks can run on; without torch there are none."""
    if _version("torch") is None:
        return []
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{number} ({torch.cuda.get_device_name(number)})" for number in range(count))]


def describe_threads() -> dict[str, Any]:
    """Return the number of cores and the environment variables that limit threads."""
    return {"cores": available_threads(), **{name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}}


def describe_caches() -> dict[str, Any]:
    """Return the cache folder, the bytes of each cache in it, and whether compiled code can be cached."""
    root = cache_root()
    sizes = {child.name: _folder_bytes(child) for child in sorted(root.iterdir()) if child.is_dir()} if root.is_dir() else {}
    return {"folder": str(root), "bytes": sizes, "compiled": private_cache_folder() is not None}


def list_extras() -> list[Extra]:
    """Return the extras that the installed package declares."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires("proxyhash") or []:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package and extra[1] not in _COMBINED and package[0] != "proxyhash":
            packages.setdefault(extra[1], []).append(package[0])
    return [_extra(name, names) for name, names in packages.items()]


def free_bytes(path: Path) -> int | None:
    """Return the free bytes on the disk of a path that may not exist yet."""
    existing = next((parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists()), None)
    return None if existing is None else shutil.disk_usage(existing).free


def _warnings(found: dict[str, Any]) -> Iterator[str]:
    """Yield one sentence for each problem, with its remedy."""
    if not found["caches"]["compiled"]:
        folder = found["caches"]["folder"]
        yield f"{folder} is not private to you, so compiled code is not cached: set PROXYHASH_CACHE to a folder of your own."
    for path, free in found["disk"].items():
        if free is not None and free < LOW_DISK_BYTES:
            yield f"{path} has {free / 2**30:.1f} GiB left: make room before a training or a download."
    if not found["devices"]:
        yield "Networks need torch: pip install 'proxyhash[train]'."


def _extra(name: str, packages: list[str]) -> Extra:
    found = {package: _version(package) for package in packages}
    installed = {package: version for package, version in found.items() if version is not None}
    missing = tuple(package for package, version in found.items() if version is None)
    return Extra(name, PURPOSES.get(name, ""), installed, missing)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _folder_bytes(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(base) / name).lstat().st_size
            except OSError:  # deleted meanwhile
                continue
    return total
