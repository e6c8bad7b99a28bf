"""Cache of the features q(x) of data sets on disk."""

import atexit
import hashlib
import json
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import SESSION
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.models.device import module_device
from proxyhash.models.network import NormalizedBackbone
from proxyhash.models.onnx_backend import Floats, OnnxBackend, is_onnx_available
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.probe import are_close, probe_pixels, read_probe, write_probe
from proxyhash.models.runtime import InferenceBackend, run_inference
from proxyhash.models.storage import PROBE
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json
from proxyhash.utils.legacy_names import feature_cache_crop
from proxyhash.utils.paths import cache_root
from proxyhash.utils.progress import Progress, no_progress

SAVE_EVERY = 32  # batches between two saves
FORMAT = 2
CHECKSUMS, CHECKSUMS_FORMAT = "checksums.json", "proxyhash.features/1"
ARRAYS = ("features.npy", "readable.npy")
CRC_CHUNK = 1 << 24


@dataclass(frozen=True)
class CachedFeatures:
    """Features (N, width), mapped from a file, and which images could be read (N,)."""

    values: Floats
    readable: NDArray[np.bool_]
    folder: Path


def cached_features(
    dataset: Dataset,
    backbone: Backbone,
    transform: Transform,
    *,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> CachedFeatures:
    """Return the features of all images of a data set, from the cache if possible.

    The key of an entry is a hash of the weights, the images and the transform. An interrupted extraction is resumed. For a
    network of the user, the key also covers its printed structure, and an entry is replaced if the network gives other
    outputs for two fixed images than before: its code may have changed.
    """
    name = f"{dataset.name}-{backbone.config.name.replace('/', '-')}-{transform.size}"
    fingerprint = dataset.images.fingerprint()
    folder = folder or (_session_folder() if fingerprint.startswith(SESSION) else cache_root() / "features")
    entry = folder / f"{name}-{_key(fingerprint, backbone, transform)[:16]}"
    if isinstance(backbone, WrappedBackbone):
        _check_outputs(backbone, transform.size, entry)
    if not (entry / "features.npy").is_file():
        _extract(dataset, backbone, transform, entry, progress)
    features = _read(entry, (len(dataset), backbone.config.num_features))
    for index in np.flatnonzero(~features.readable):
        dataset.skipped.add("unreadable image", dataset.images.key(int(index)))
    return features


@cache
def _session_folder() -> Path:
    """Return a folder for features of images whose content is not known; it is deleted at exit."""
    folder = Path(tempfile.mkdtemp(prefix="proxyhash-features-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _read(entry: Path, shape: tuple[int, int]) -> CachedFeatures:
    _check(entry)
    try:
        values = np.load(entry / "features.npy", mmap_mode="r", allow_pickle=False)
        readable = np.load(entry / "readable.npy", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"The cached features in {entry} are damaged; delete that folder.") from error
    if values.shape != shape or values.dtype != np.float32 or readable.shape != shape[:1] or readable.dtype != bool:
        raise InputError(f"The cached features in {entry} are damaged; delete that folder.")
    return CachedFeatures(values, readable, entry)


def _check(entry: Path) -> None:
    """Raise unless the files are as they were written; entries of earlier releases have no checksums."""
    if not (entry / CHECKSUMS).is_file():
        return
    content = read_json(entry / CHECKSUMS)
    fields = content if isinstance(content, dict) else {}
    check_format(entry / CHECKSUMS, fields.get("format"), (CHECKSUMS_FORMAT,), fields.get(REQUIRES))
    if fields.get("crc32") != {name: _crc32(entry / name) for name in ARRAYS}:
        raise InputError(f"The cached features in {entry} are damaged; delete that folder.")


def _crc32(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"The cached features in {path.parent} are damaged; delete that folder.") from error
    return _crc32_of_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _crc32_of_version(path: Path, _modified: int, _size: int) -> int:
    """Return the CRC-32 of a file, once for each version of it: the trials of a grid share their features."""
    found = 0
    with path.open("rb") as handle:
        while chunk := handle.read(CRC_CHUNK):
            found = zlib.crc32(chunk, found)
    return found


def _write_checksums(entry: Path) -> None:
    sums = {name: _crc32(entry / name) for name in ARRAYS}
    with atomic_write(entry / CHECKSUMS) as temporary:
        temporary.write_text(dump_json({"format": CHECKSUMS_FORMAT, REQUIRES: RELEASE, "crc32": sums}), encoding="utf-8")


def _check_outputs(backbone: WrappedBackbone, size: int, entry: Path) -> None:
    """Empty an entry unless its probe holds the outputs of this network."""
    outputs = TorchBackend(NormalizedBackbone(backbone))(probe_pixels(size))
    if (entry / PROBE).is_file() and are_close(outputs, read_probe(entry / PROBE)):
        return
    _make_folder(entry)
    for name in (*ARRAYS, CHECKSUMS, "features.part", "progress.json"):
        (entry / name).unlink(missing_ok=True)
    with atomic_write(entry / PROBE) as temporary:
        write_probe(temporary, outputs)


def _make_folder(entry: Path) -> None:
    try:
        entry.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot keep features in {entry}: {error.strerror}.") from error


def _extract(dataset: Dataset, backbone: Backbone, transform: Transform, entry: Path, progress: Progress) -> None:
    """Fill `features.part` batch by batch, save the progress, and rename it at the end."""
    _make_folder(entry)
    part, mark = entry / "features.part", entry / "progress.json"
    values, begun = _part(part, mark, (len(dataset), backbone.config.num_features))
    outputs = run_inference(
        dataset.images,
        _runner(backbone, transform.size, entry),
        transform,
        indices=np.arange(begun, len(dataset)),
        skipped=SkippedItems(dataset.skipped.strict),
        work="extracting features",
        progress=progress,
    )
    for number, (indices, rows) in enumerate(outputs, 1):
        values[begun : indices[-1] + 1] = np.nan  # rows that are not overwritten could not be read
        values[indices] = rows
        begun = int(indices[-1]) + 1
        if number % SAVE_EVERY == 0:
            values.flush()
            _note(mark, begun)
    values[begun:] = np.nan
    values.flush()
    with atomic_write(entry / "readable.npy") as temporary, temporary.open("wb") as handle:
        np.save(handle, ~np.isnan(values[:, 0]))
    del values  # Windows renames no file that is mapped
    part.replace(entry / "features.npy")
    _write_checksums(entry)
    mark.unlink(missing_ok=True)
    (entry / "network.onnx").unlink(missing_ok=True)


def _part(part: Path, mark: Path, shape: tuple[int, int]) -> tuple[np.memmap[tuple[int, ...], np.dtype[np.float32]], int]:
    """Return the file to fill and the number of its complete rows: an interrupted one if it is valid, or a new one."""
    try:
        done = json.loads(mark.read_text(encoding="utf-8"))["done"]
        values = np.lib.format.open_memmap(part, mode="r+")
        if values.shape == shape and values.dtype == np.float32 and 0 <= done <= len(values):
            return values, done
    except (OSError, ValueError, KeyError, TypeError):
        pass
    mark.unlink(missing_ok=True)
    return np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape), 0


def _runner(backbone: Backbone, image_size: int, entry: Path) -> InferenceBackend:
    network = NormalizedBackbone(backbone)
    on_cpu = module_device(backbone).type == "cpu"
    if not (on_cpu and is_onnx_available()):
        return TorchBackend(network)
    try:
        export_onnx(network, entry / "network.onnx", image_size, outputs=("features",))
    except InputError:  # slower, but the features are the same
        return TorchBackend(network)
    return OnnxBackend(entry / "network.onnx")


def _note(mark: Path, done: int) -> None:
    with atomic_write(mark) as temporary:
        temporary.write_text(json.dumps({"done": done}), encoding="utf-8")


def _key(fingerprint: str, backbone: Backbone, transform: Transform) -> str:
    seen = (
        transform.side,
        transform.fit,
        feature_cache_crop(transform.crop),
        transform.size,
    )  # all that matters without augmentation
    digest = hashlib.sha256(f"{FORMAT};{fingerprint};{seen};".encode())
    if isinstance(backbone, WrappedBackbone):
        digest.update(f"{backbone.config};{backbone.module};".encode())
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
