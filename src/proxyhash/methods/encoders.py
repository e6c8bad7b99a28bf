"""Encoders that fitted methods produce, and their files."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from proxyhash.codes import pack
from proxyhash.methods.kernel import Anchors
from proxyhash.models.heads import (
    HashHead,
    Head,
    HeadConfig,
    KernelHead,
    Queries,
    UnitKernelHead,
    create_head,
    describe_head,
)
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

LINEAR_FORMAT = "proxyhash.feature-hasher/1"
HEAD_FORMAT = "proxyhash.head-hasher/1"
TRAINING_CODES = "training_codes"  # no parameter of a head has this name
UNIT_NORM = "unit_norm"  # in the metadata of an encoder with a kernel
_LINEAR_ROWS, _HEAD_ROWS = 8192, 4096  # features that are embedded at once

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LinearEncoder:
    """Codes b(x) = sign(P'(phi(q) - m)), where phi is the identity or the kernel with `anchors`.

    Parameters
    ----------
    method
        The name of the method.
    mean
        m (width,), or (anchors,) with a kernel.
    projection
        P (width, bits), or (anchors, bits) with a kernel.
    anchors
        The anchors of the kernel.
    settings
        The settings that it was fitted with.

    Examples
    --------
    >>> encoder = LinearEncoder("first", np.zeros(2, np.float32), np.eye(2, 1, dtype=np.float32))
    >>> encoder.encode(np.array([[1, 5], [-1, 5]], np.float32)).tolist()
    [[1], [0]]
    """

    method: str
    mean: Floats
    projection: Floats
    anchors: Anchors | None = None
    settings: Any = None

    @property
    def bits(self) -> int:
        """Return the length of codes."""
        return int(self.projection.shape[1])

    @property
    def metric(self) -> str:
        """Return how codes are compared."""
        return "hamming"

    def embed(self, features: Floats) -> Floats:
        """Return P'(phi(q) - m) (N, bits) for features (N, width)."""
        width = self.anchors.points.shape[1] if self.anchors is not None else len(self.mean)
        _check_width(self.method, features, width)
        chunks = (features[first : first + _LINEAR_ROWS] for first in range(0, len(features), _LINEAR_ROWS))
        parts = [(self._phi(np.asarray(chunk, np.float32)) - self.mean) @ self.projection for chunk in chunks]
        return np.concatenate([np.zeros((0, self.bits), np.float32), *parts])

    def encode(self, features: Floats) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        return pack(self.embed(features) >= 0)

    def encode_queries(self, features: Floats) -> NDArray[np.uint8]:
        """Return what is compared with the codes of a database: codes as well."""
        return self.encode(features)

    def to_head(self) -> Head:
        """Return the head whose signs are the codes: nu = tanh(P'q - P'm), or with a kernel u = P'(phi(q) - m)."""
        if self.anchors is not None:
            return self._to_kernel_head(self.anchors)
        head = HashHead(HeadConfig(len(self.mean), self.bits))
        weight = torch.from_numpy(np.ascontiguousarray(self.projection.T))
        bias = torch.from_numpy(-(self.mean.astype(np.float64) @ self.projection).astype(np.float32))
        head.load_state_dict({"layers.0.weight": weight, "layers.0.bias": bias})
        return head.eval()

    def _to_kernel_head(self, anchors: Anchors) -> KernelHead:
        kind = UnitKernelHead if anchors.unit_norm else KernelHead
        head = kind(HeadConfig(anchors.points.shape[1], self.bits, hidden_dim=len(anchors.points)))
        bandwidth = np.array([anchors.bandwidth], np.float32)
        arrays = {"anchors": anchors.points, "bandwidth": bandwidth, "mean": self.mean, "projection": self.projection}
        head.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})
        return head.eval()

    def _phi(self, features: Floats) -> Floats:
        return features if self.anchors is None else self.anchors.kernel(features)

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        arrays = {"mean": self.mean, "projection": self.projection}
        if self.anchors is not None:
            arrays |= {"anchors": self.anchors.points, "bandwidth": np.array([self.anchors.bandwidth], np.float32)}
        settings = json.dumps(asdict(self.settings) if self.settings is not None else {})
        metadata = {"format": LINEAR_FORMAT, "method": self.method, "settings": settings}
        if self.anchors is not None and self.anchors.unit_norm:
            metadata[UNIT_NORM] = "true"
        contiguous = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        with atomic_write(path) as temporary:
            safetensors.numpy.save_file(contiguous, temporary, metadata)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the encoder of a file that `save` wrote; it gives the same codes."""
        metadata, arrays = _read(path, "numpy", LINEAR_FORMAT)
        if not {"mean", "projection"} <= arrays.keys():
            raise InputError(f"{path} is not a saved method of this version.")
        anchors = None
        if "anchors" in arrays:
            anchors = Anchors(arrays["anchors"], float(arrays["bandwidth"][0]), metadata.get(UNIT_NORM) == "true")
        return cls(metadata["method"], arrays["mean"], arrays["projection"], anchors)


@dataclass(frozen=True, eq=False)
class HeadEncoder:
    """Codes of a trained head on given features; by default the signs of nu = tanh(L' h(q) + b).

    Parameters
    ----------
    method
        The name of the method.
    head
        The head, in evaluation mode.
    training_codes
        Packed codes of the training images, if the method learns them apart from the head.
    proxies
        The proxies that it was trained with, if the method has any. They are not saved.

    Examples
    --------
    >>> encoder = HeadEncoder("dpsh", HashHead(HeadConfig(4, 8)).eval())
    >>> encoder.bits, encoder.metric, encoder.encode(np.zeros((3, 4), np.float32)).shape
    (8, 'hamming', (3, 1))
    """

    method: str
    head: Head
    training_codes: NDArray[np.uint8] | None = None
    proxies: ProxySet | None = None

    @property
    def metric(self) -> str:
        """Return how codes are compared."""
        return self.head.metric

    @property
    def bits(self) -> int:
        """Return the length of codes."""
        return self.head.config.bits

    def to_head(self) -> Head:
        """Return the head."""
        return self.head

    def embed(self, features: Floats) -> Floats:
        """Return the outputs of the head, by default nu (N, bits)."""
        _check_width(self.method, features, self.head.config.in_features)
        with torch.inference_mode():
            chunks = (features[first : first + _HEAD_ROWS] for first in range(0, len(features), _HEAD_ROWS))
            parts = [self.head(torch.from_numpy(np.array(chunk, np.float32))).numpy() for chunk in chunks]
        return np.concatenate([np.zeros((0, self.head.out_features), np.float32), *parts])

    def encode(self, features: Floats) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        return self.head.encode(self.embed(features))

    def encode_queries(self, features: Floats) -> Queries:
        """Return what is compared with the codes of a database."""
        return self.head.encode_queries(self.embed(features))

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        metadata = {"format": HEAD_FORMAT, "method": self.method, "head": json.dumps(describe_head(self.head))}
        tensors = {name: tensor.contiguous() for name, tensor in self.head.state_dict().items()}
        if self.training_codes is not None:
            tensors[TRAINING_CODES] = torch.from_numpy(self.training_codes)
        with atomic_write(path) as temporary:
            safetensors.torch.save_file(tensors, temporary, metadata)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the encoder of a file that `save` wrote; it gives the same codes."""
        metadata, tensors = _read(path, "pt", HEAD_FORMAT)
        codes = tensors.pop(TRAINING_CODES, None)
        try:
            head = create_head(json.loads(metadata["head"]))
            head.load_state_dict(tensors)
        except (RuntimeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a saved method: {error}.") from error
        return cls(metadata["method"], head.eval(), None if codes is None else codes.numpy())


def _check_width(method: str, features: Floats, width: int) -> None:
    if features.ndim != 2 or features.shape[1] != width:
        raise InputError(f"{method} was fitted on features of width {width}, not on {features.shape}.")


def _read(path: Path, framework: str, expected: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return metadata and tensors of a file; another format than `expected` is an error."""
    try:
        with safe_open(path, framework) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is not a saved method: {error}.") from error
    if metadata.get("format") != expected:
        raise InputError(f"{path} is not a saved method of this version.")
    return metadata, tensors
