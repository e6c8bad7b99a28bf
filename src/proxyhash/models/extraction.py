"""What the caches of a network's outputs share: folder, key and backend."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from proxyhash.data.images import SESSION
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.models.device import module_device
from proxyhash.models.onnx_backend import OnnxBackend, is_onnx_available
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.probe import are_close, probe_pixels, read_probe, write_probe
from proxyhash.models.row_cache import RowCache
from proxyhash.models.runtime import InferenceBackend
from proxyhash.models.storage import PROBE
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import feature_cache_crop
from proxyhash.utils.paths import cache_root


class Digest(Protocol):
    """A hash function of hashlib."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""
        ...


def cache_folder(kind: str, fingerprint: str) -> Path:
    """Return the folder of all entries of a kind, for images with a fingerprint.

    Images whose content is not known have a folder that is deleted at exit.
    """
    return _session_folder(kind) if fingerprint.startswith(SESSION) else cache_root() / kind


@cache
def _session_folder(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"proxyhash-{kind}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def describe_pixels(transform: Transform) -> tuple[Any, ...]:
    """Return all of a transform that decides the pixels without augmentation."""
    return transform.side, transform.fit, feature_cache_crop(transform.crop), transform.size


def hash_network(backbone: Backbone, part: nn.Module, digest: Digest) -> None:
    """Add the weights of a part of a backbone to a digest, and the printed structure of a network of the user."""
    if isinstance(backbone, WrappedBackbone):
        digest.update(f"{backbone.config};{backbone.module};".encode())
    for name, tensor in part.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())


def clear_if_changed(rows: RowCache, network: nn.Module, image_size: int) -> None:
    """Empty an entry unless its probe holds the outputs of this network: the code of a user's network may have changed."""
    outputs = TorchBackend(network)(probe_pixels(image_size))
    probe = rows.entry / PROBE
    if probe.is_file() and are_close(outputs, read_probe(probe)):
        return
    rows.clear()
    with atomic_write(probe) as temporary:
        write_probe(temporary, outputs)


def fastest_backend(network: nn.Module, image_size: int, output: str) -> InferenceBackend:
    """Return what runs a network for pixels: onnxruntime on a CPU where it can, otherwise torch."""
    if module_device(network).type != "cpu" or not is_onnx_available():
        return TorchBackend(network)
    with tempfile.TemporaryDirectory(prefix="proxyhash-") as folder:
        path = Path(folder) / "network.onnx"
        try:
            export_onnx(network, path, image_size, outputs=(output,))
        except InputError:  # slower, but the outputs are the same
            return TorchBackend(network)
        return OnnxBackend(path)
