"""Fitted encoders of vectors, and their folders."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from proxyhash.codes.bits import Packed
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.vectors.rows import VectorRows
from proxyhash.models.backbones import Backbone
from proxyhash.models.encoder import ImagesLike
from proxyhash.models.hasher import Hasher
from proxyhash.models.heads import Head, Queries, create_head, describe_head
from proxyhash.models.heads.linear import LinearHead
from proxyhash.models.linear_encoder import NO_IMAGES, Floats, VectorsLike, as_rows, encode_linear
from proxyhash.models.network import HashNetwork
from proxyhash.models.network_files import check_tensors
from proxyhash.models.runtime import InferenceBackend
from proxyhash.models.storage import CONFIG, PROXIES, VECTOR_FORMAT, WEIGHTS, read_class_names, read_metadata
from proxyhash.proxies import ProxySet
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES
from proxyhash.utils.progress import Progress, no_progress

EMBED_ROWS = 2048  # vectors that a head embeds at once


class VectorNetwork(HashNetwork):
    """Vectors (N, width) to nu (N, bits): scaled to length 1 if `normalize` is set, then the head."""

    def __init__(self, head: Head, *, normalize: bool) -> None:
        nn.Module.__init__(self)
        self.normalize = normalize
        self.head = head

    def forward(self, vectors: Tensor) -> Tensor:
        """Return nu."""
        nu: Tensor = self.head(nn.functional.normalize(vectors, eps=1e-30) if self.normalize else vectors)
        return nu


@dataclass
class VectorHasher(Hasher):
    """An encoder nu(x) = tanh(L'x + b) of vectors x, or another head, with class names and proxies.

    `proxyhash fit` makes one, and `Hasher.load("encoder")` reads it.

    Parameters
    ----------
    network
        The head, and whether vectors are scaled to length 1 first.
    class_names, proxies, metadata, folder, training_codes
        See `Hasher`.

    Examples
    --------
    >>> from proxyhash.models.heads import HashHead, HeadConfig
    >>> hasher = VectorHasher(VectorNetwork(HashHead(HeadConfig(4, bits=16)).eval(), normalize=True))
    >>> hasher.encode(np.ones((3, 4), np.float32)).shape  # 16 bits are two bytes
    (3, 2)
    """

    network: VectorNetwork
    transform: Any = field(default=None, repr=False)

    @property
    def width(self) -> int:
        """Return the number of values of a vector."""
        return self.head.config.in_features

    @property
    def normalizes(self) -> bool:
        """Return whether vectors are scaled to length 1 before they are encoded."""
        return self.network.normalize

    def rows(self, vectors: VectorsLike, name: str = "The vectors") -> VectorRows:
        """Return vectors as rows that this model takes; another width is an error."""
        return as_rows(vectors, self.width, normalize=self.normalizes, name=name)

    def encode(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Packed:  # type: ignore[override]
        """Return packed codes (N, ceil(bits / 8)) of vectors (N, width)."""
        parts = list(self.encode_batches(vectors, progress=progress))
        return np.concatenate([np.zeros((0, -(-self.bits // 8)), np.uint8), *parts])

    def encode_batches(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Iterator[Packed]:
        """Yield packed codes of some thousands of vectors at a time, in order."""
        rows, layer, done = self.rows(vectors), self._linear_layer(), 0
        batches: Iterator[Packed]
        if layer is None:
            batches = (self.head.encode(self._embed_chunk(rows[part])) for part in rows.slices())
        else:
            batches = encode_linear(rows, *layer)
        for codes in batches:
            done += len(codes)
            progress("encoding vectors", done / len(rows))
            yield codes

    def _embed_chunk(self, chunk: Floats) -> Floats:
        """Return the outputs of the head for rows that are scaled already."""
        device = next(self.head.parameters(), torch.zeros(0)).device
        with torch.inference_mode():
            parts = [
                self.head(torch.from_numpy(np.ascontiguousarray(chunk[first : first + EMBED_ROWS])).to(device)).cpu().numpy()
                for first in range(0, len(chunk), EMBED_ROWS)
            ]
        return np.concatenate(parts)

    def _linear_layer(self) -> tuple[Floats, Floats] | None:
        """Return weight (width, bits) and bias (bits,) of a head that is one layer on the CPU with signs as codes."""
        if not isinstance(self.head, LinearHead) or len(self.head.layers) != 1:
            return None
        layer = self.head.layers[0]
        if not isinstance(layer, nn.Linear) or layer.weight.device.type != "cpu":
            return None
        return np.ascontiguousarray(layer.weight.detach().numpy().T), layer.bias.detach().numpy()

    def embed(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Floats:  # type: ignore[override]
        """Return the embeddings nu (N, bits) of vectors (N, width)."""
        rows, parts = self.rows(vectors), [np.zeros((0, self.head.out_features), np.float32)]
        for part in rows.slices():
            parts.append(self._embed_chunk(rows[part]))
            progress("encoding vectors", part.stop / len(rows))
        return np.concatenate(parts)

    def encode_queries(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Queries:  # type: ignore[override]
        """Return what is compared with the codes of a database: codes, or tables of asymmetric distances."""
        return self.head.encode_queries(self.embed(vectors, progress=progress))

    @property
    def backbone(self) -> Backbone:
        """Raise an `InputError`: vectors need no backbone."""
        raise InputError(NO_IMAGES)

    @property
    def pixel_spec(self) -> PixelSpec:
        """Raise an `InputError`: the input is vectors."""
        raise InputError(NO_IMAGES)

    def features(self, images: ImagesLike, *, progress: Progress = no_progress) -> Floats:  # noqa: ARG002
        """Raise an `InputError`: the features of a vector are the vector itself."""
        raise InputError(NO_IMAGES)

    @property
    def has_features(self) -> bool:
        """Return False: the features of a vector are the vector itself."""
        return False

    def _backend(self) -> InferenceBackend:
        raise InputError(NO_IMAGES)

    def _check_complete(self) -> None:
        """Do nothing: the weights are always there."""

    def _save_onnx(self, folder: Path) -> None:
        """Write no ONNX file: a head needs none."""

    def _config(self, sums: dict[str, str]) -> dict[str, Any]:
        return {
            "format": VECTOR_FORMAT,
            REQUIRES: RELEASE,
            "normalize": self.normalizes,
            "head": describe_head(self.head),
            "class_names": self.class_names,
            "sha256": sums,
            "metadata": self.metadata,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path, device: str) -> Self:
        """Return the model of a folder, whose files were checked."""
        names, metadata, normalize = read_class_names(config, folder), read_metadata(config, folder), config["normalize"]
        proxies = ProxySet.load(folder / PROXIES) if PROXIES in config["sha256"] else None
        if not isinstance(normalize, bool):
            raise InputError(f"{folder / CONFIG}: normalize must be true or false.")
        weights = load_file(folder / WEIGHTS)
        with torch.device("meta"):
            network = VectorNetwork(create_head(config["head"]), normalize=normalize)
        needed = {name: tensor.shape for name, tensor in network.state_dict().items()}
        if needed != {name: tensor.shape for name, tensor in weights.items()}:
            raise InputError(f"{folder / WEIGHTS} does not hold the head that {CONFIG} describes.")
        check_tensors(weights, network.state_dict(), folder / WEIGHTS)
        network.to_empty(device="cpu").load_state_dict(weights)
        return cls(network.to(device).eval(), None, names, proxies, metadata, None, folder)
