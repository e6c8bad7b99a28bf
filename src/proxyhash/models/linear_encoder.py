"""`LinearVectorEncoder`: a saved model of vectors that encodes by one matrix product, without torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.vectors.rows import VectorRows
from proxyhash.models.encoder import ModelEncoder
from proxyhash.models.runtime import InferenceBackend
from proxyhash.models.storage import (
    CONFIG,
    WEIGHTS,
    check_files,
    read_class_names,
    read_config,
    read_metadata,
    takes_vectors,
    translate_errors,
)
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress

Floats = NDArray[np.float32]
VectorsLike = VectorRows | NDArray[Any] | Sequence[Sequence[float]]
"""Vectors (N, width) of floats."""

NO_IMAGES = "This model encodes vectors, not images."
_KINDS = ("tanh", "linear")  # heads that are one layer
_WEIGHT, _BIAS = "head.layers.0.weight", "head.layers.0.bias"


@dataclass(frozen=True, eq=False)
class LinearVectorEncoder(ModelEncoder):
    """A saved model of vectors whose head is one layer: the codes of `Hasher.load`, which needs torch.

    Parameters
    ----------
    weight
        L (width, bits).
    bias
        b (bits,).
    normalizes
        Whether vectors are scaled to length 1 before they are encoded.
    head_kind
        tanh for embeddings nu = tanh(L'x + b), linear for L'x + b.
    class_names, metadata, folder
        See `ModelEncoder`.

    Examples
    --------
    >>> weight, bias = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    >>> encoder = LinearVectorEncoder(weight, bias, normalizes=True, head_kind="tanh")
    >>> encoder.encode(np.array([[1, 5], [-1, 5]], np.float32)).tolist()
    [[3], [2]]
    """

    weight: Floats = field(repr=False)
    bias: Floats = field(repr=False)
    normalizes: bool
    head_kind: str
    class_names: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return len(self.bias)

    @property
    def width(self) -> int:
        """Return the number of values of a vector."""
        return len(self.weight)

    def rows(self, vectors: VectorsLike, name: str = "The vectors") -> VectorRows:
        """Return vectors as rows that this model takes; another width is an error."""
        return as_rows(vectors, self.width, normalize=self.normalizes, name=name)

    def encode(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Packed:  # type: ignore[override]
        """Return packed codes (N, ceil(bits / 8)) of vectors (N, width)."""
        rows, parts = self.rows(vectors), [np.zeros((0, -(-self.bits // 8)), np.uint8)]
        for codes in encode_linear(rows, self.weight, self.bias):
            parts.append(codes)
            progress("encoding vectors", sum(map(len, parts)) / len(rows))
        return np.concatenate(parts)

    def embed(self, vectors: VectorsLike, *, progress: Progress = no_progress) -> Floats:  # type: ignore[override]
        """Return the embeddings nu (N, bits) of vectors (N, width)."""
        rows, parts = self.rows(vectors), [np.zeros((0, self.bits), np.float32)]
        for part in rows.slices():
            outputs = rows[part] @ self.weight + self.bias
            parts.append(np.tanh(outputs) if self.head_kind == "tanh" else outputs)
            progress("encoding vectors", part.stop / len(rows))
        return np.concatenate(parts)

    @property
    def pixel_spec(self) -> PixelSpec:
        """Raise an `InputError`: the input is vectors."""
        raise InputError(NO_IMAGES)

    def _backend(self) -> InferenceBackend:
        raise InputError(NO_IMAGES)

    @staticmethod
    def can_load(folder: Path) -> bool:
        """Return whether a folder holds a model of vectors whose head is one layer with signs as codes."""
        config = read_config(folder)
        head = config.get("head")
        if not takes_vectors(config) or not isinstance(head, dict):
            return False
        return head.get("kind") in _KINDS and not head.get("hidden_dim")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder that `VectorHasher.save` wrote, if `can_load` says so.

        Raises
        ------
        InputError
            If a file is damaged, or if the weights are not those that the configuration describes.
        """
        config = read_config(folder)
        check_files(folder, config.get("sha256"))
        with translate_errors(folder):
            head, normalize = config["head"], config["normalize"]
            names, metadata = read_class_names(config, folder), read_metadata(config, folder)
            if not isinstance(normalize, bool):
                raise InputError(f"{folder / CONFIG}: normalize must be true or false.")
            tensors, shape = load_file(folder / WEIGHTS), (head["bits"], head["in_features"])
            if {name: tensor.shape for name, tensor in tensors.items()} != {_WEIGHT: shape, _BIAS: shape[:1]}:
                raise InputError(f"{folder / WEIGHTS} does not hold the head that {CONFIG} describes.")
            for name, tensor in tensors.items():
                if tensor.dtype.kind != "f" or not np.isfinite(tensor).all():
                    raise InputError(f"{folder / WEIGHTS} holds numbers that are not finite, in {name}; fit it again.")
        weight = np.ascontiguousarray(tensors[_WEIGHT].T, np.float32)
        return cls(weight, tensors[_BIAS].astype(np.float32), normalize, head["kind"], names, metadata, folder)


def as_rows(vectors: VectorsLike, width: int, *, normalize: bool, name: str) -> VectorRows:
    """Return vectors as rows that a model takes; another width is an error."""
    values = vectors.values if isinstance(vectors, VectorRows) else np.asarray(vectors)
    name = vectors.name if isinstance(vectors, VectorRows) else name
    if values.ndim == 2 and values.shape[1] != width:
        raise InputError(f"{name}: the model takes vectors of {width} values, not {values.shape[1]}.")
    return VectorRows(values, normalize=normalize, name=name)


def encode_linear(rows: VectorRows, weight: Floats, bias: Floats) -> Iterator[Packed]:
    """Yield packed codes of the rows: the signs of L'x / ||x|| + b are those of L'x + ||x|| b."""

    def encode(part: slice) -> Packed:
        values, lengths = rows.raw(part)
        outputs = values @ weight
        outputs += lengths[:, None] * bias if rows.normalize else bias
        return pack(binarize(outputs))

    with single_threaded_blas():  # each thread encodes a chunk of its own: it reads, checks, multiplies and packs
        yield from ordered_map(encode, rows.slices(), available_threads())
