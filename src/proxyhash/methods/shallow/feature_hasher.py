"""What every shallow method ends in: a linear map of features, or of their kernel with some anchors, and its signs."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from proxyhash.codes import pack
from proxyhash.methods.shallow.kernel import Anchors
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FORMAT = "proxyhash.feature-hasher/1"
PIECE = 8192  # rows whose kernel is held at once

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FeatureHasher:
    """b(x) = sign(P'(phi(q) - m)), where phi is the identity or the kernel with `anchors`; P is (width, bits)."""

    method: str
    mean: Floats
    projection: Floats
    anchors: Anchors | None = None
    settings: Any = None  # the frozen dataclass it was fitted with

    @property
    def bits(self) -> int:
        """Return the length of its codes."""
        return int(self.projection.shape[1])

    @property
    def searches(self) -> str:
        """Return how its codes are compared."""
        return "Hamming"

    def embed(self, features: Floats) -> Floats:
        """Return P'(phi(q) - m) (N, bits) for features (N, width), a piece at a time."""
        width = self.anchors.points.shape[1] if self.anchors is not None else len(self.mean)
        if features.ndim != 2 or features.shape[1] != width:
            raise InputError(f"{self.method} was fitted on features of width {width}, not on {features.shape}.")
        pieces = (features[first : first + PIECE] for first in range(0, len(features), PIECE))
        parts = [(self._phi(np.asarray(piece, np.float32)) - self.mean) @ self.projection for piece in pieces]
        return np.concatenate([np.zeros((0, self.bits), np.float32), *parts])

    def encode(self, features: Floats) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        return pack(self.embed(features) >= 0)

    def queries(self, features: Floats) -> NDArray[np.uint8]:
        """Return what is compared with the codes of a database: codes as well."""
        return self.encode(features)

    def _phi(self, features: Floats) -> Floats:
        return features if self.anchors is None else self.anchors.kernel(features)

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        arrays = {"mean": self.mean, "projection": self.projection}
        if self.anchors is not None:
            arrays |= {"anchors": self.anchors.points, "bandwidth": np.array([self.anchors.bandwidth], np.float32)}
        settings = json.dumps(asdict(self.settings) if self.settings is not None else {})
        with atomic_write(path) as temporary:
            save_file(
                {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()},
                temporary,
                metadata={"format": FORMAT, "method": self.method, "settings": settings},
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote; it gives the same codes."""
        try:
            with safe_open(path, "numpy") as file:
                facts = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
        except FileNotFoundError:
            raise InputError(f"There is no file {path}.") from None
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path} is not a saved method: {error}.") from error
        if facts.get("format") != FORMAT or not {"mean", "projection"} <= arrays.keys():
            raise InputError(f"{path} is not a saved method of this version.")
        anchors = Anchors(arrays["anchors"], float(arrays["bandwidth"][0])) if "anchors" in arrays else None
        return cls(facts["method"], arrays["mean"], arrays["projection"], anchors)
