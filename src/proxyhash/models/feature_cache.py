"""Features q(x) of every image of a data set, computed once: kept on disk, mapped into memory, continued after a kill."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.dataset import Dataset
from proxyhash.data.problems import Problems
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones.backbone import Backbone
from proxyhash.models.network import Normalised
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.runners import Floats, OnnxRunner, Runner, TorchRunner, onnx_available
from proxyhash.models.running import run_images
from proxyhash.support.errors import InputError
from proxyhash.support.files import written_whole
from proxyhash.support.places import cache_root
from proxyhash.support.progress import Progress, silent

SAVE_EVERY = 32  # batches; a kill loses at most these
FORMAT = 1


@dataclass(frozen=True)
class Features:
    """Features (N, width), mapped from a file, and which images could be read (N,)."""

    values: Floats
    readable: NDArray[np.bool_]
    folder: Path


def cached_features(
    dataset: Dataset, backbone: Backbone, transform: Transform, *, folder: Path | None = None, progress: Progress = silent
) -> Features:
    """Return the features of all images of a data set, from the cache if they are there.

    The cache is keyed by the network's weights, the images and the transform: a changed one of these is another entry.
    """
    key = _key(dataset, backbone, transform)
    entry = (folder or cache_root() / "features") / f"{dataset.name}-{backbone.facts.name}-{transform.size}-{key[:16]}"
    if not (entry / "features.npy").is_file():
        _extract(dataset, backbone, transform, entry, progress)
    try:
        values = np.load(entry / "features.npy", mmap_mode="r", allow_pickle=False)
        readable = np.load(entry / "readable.npy", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"The cached features in {entry} are damaged; delete that folder.") from error
    _count_unreadable(dataset, readable)
    return Features(values, readable, entry)


def _extract(dataset: Dataset, backbone: Backbone, transform: Transform, entry: Path, progress: Progress) -> None:
    """Fill `features.part` batch by batch, noting how far it is whole, and give it its name at the end."""
    entry.mkdir(parents=True, exist_ok=True)
    part, mark = entry / "features.part", entry / "progress.json"
    shape = (len(dataset), backbone.facts.width)
    begun = json.loads(mark.read_text())["done"] if mark.is_file() and part.is_file() else 0
    values = np.lib.format.open_memmap(part, mode="r+" if begun else "w+", dtype=np.float32, shape=None if begun else shape)
    problems = Problems()
    left = np.arange(begun, len(dataset))
    runner = _runner(backbone, transform.size, entry)
    outputs = run_images(
        dataset.images, runner, transform, indices=left, problems=problems, work="extracting features", progress=progress
    )
    for number, (indices, rows) in enumerate(outputs):
        values[indices] = rows
        if number % SAVE_EVERY == SAVE_EVERY - 1:
            values.flush()
            _note(mark, int(indices[-1]) + 1 if len(indices) else begun)
    values.flush()
    readable = np.asarray((values != 0).any(1))
    with written_whole(entry / "readable.npy") as temporary:
        np.save(temporary, readable)
    part.replace(entry / "features.npy")
    mark.unlink(missing_ok=True)
    (entry / "network.onnx").unlink(missing_ok=True)


def _runner(backbone: Backbone, image_size: int, entry: Path) -> Runner:
    network = Normalised(backbone)
    on_cpu = next(backbone.parameters()).device.type == "cpu"
    if not (on_cpu and onnx_available()):
        return TorchRunner(network)
    export_onnx(network, entry / "network.onnx", image_size, output="features")
    return OnnxRunner(entry / "network.onnx")


def _note(mark: Path, done: int) -> None:
    with written_whole(mark) as temporary:
        temporary.write_text(json.dumps({"done": done}))


def _count_unreadable(dataset: Dataset, readable: NDArray[np.bool_]) -> None:
    for index in np.flatnonzero(~readable):
        dataset.problems.add("unreadable image", dataset.images.key(int(index)))


def _key(dataset: Dataset, backbone: Backbone, transform: Transform) -> str:
    seen = (transform.side, transform.fit, transform.crop, transform.size)  # all that matters without augmentation
    digest = hashlib.sha256(f"{FORMAT};{dataset.images.fingerprint()};{seen};".encode())
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
