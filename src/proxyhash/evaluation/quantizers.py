"""Compressed vectors that codes are compared with: float16, int8, product quantization and RaBitQ; and float32.

All of them are compared asymmetrically: queries are not compressed.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.evaluation.neighbors import Floats
from proxyhash.proxies.geometry import random_rotation
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator

Codes = NDArray[np.uint8]

CENTROIDS = 256  # of a part of a product quantizer: one byte
OPQ_ITERATIONS = 10  # faiss's default is 50
CORRECTION_BYTES = 8  # of RaBitQ: two values of float32


class Quantizer(ABC):
    """Vectors x (N, width) as codes of `size` bytes, from which distances to queries are estimated.

    The distance of a query q is offset(x) - 2 <transform(q), decoded(x)>, less a term that depends on q only.

    Parameters
    ----------
    metric
        `l2`, `ip` or `cosine`; vectors and queries have length 1 for `cosine`.
    """

    title: str
    size: int
    """Bytes per item."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    @property
    def shared_size(self) -> int:
        """Return the bytes that all items share, such as codebooks."""
        return 0

    def fit(self, sample: Floats) -> None:  # noqa: B027  it is no abstract method
        """Learn from vectors (n, width); by default nothing."""

    @abstractmethod
    def encode(self, vectors: Floats) -> Codes:
        """Return codes (N, size) of vectors (N, width)."""

    @abstractmethod
    def reconstruct(self, codes: Codes) -> Floats:
        """Return approximate vectors (N, d), in the space of `transform`."""

    def decode(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return approximate vectors (N, d) and offsets (N,)."""
        vectors = self.reconstruct(codes)
        if self.metric == "l2":
            return vectors, np.einsum("ij,ij->i", vectors, vectors)
        return vectors, np.zeros(len(vectors), np.float32)

    def transform(self, queries: Floats) -> Floats:
        """Return queries (Q, d) as they are compared with decoded vectors."""
        return queries


class Float32(Quantizer):
    """Values as they are, the reference.

    Examples
    --------
    >>> float32 = Float32(4, "ip")
    >>> float32.encode(np.ones((2, 4), np.float32)).shape
    (2, 16)
    """

    title = "float32"

    def __init__(self, width: int, metric: str) -> None:
        super().__init__(metric)
        self.size = 4 * width

    def encode(self, vectors: Floats) -> Codes:
        """Return the bytes of the values."""
        return np.ascontiguousarray(vectors).view(np.uint8)

    def reconstruct(self, codes: Codes) -> Floats:
        """Return the values."""
        return codes.view(np.float32)


class Float16(Quantizer):
    """Values of half precision; values that are too large are clipped.

    Examples
    --------
    >>> float16 = Float16(4, "ip")
    >>> codes = float16.encode(np.ones((2, 4), np.float32))
    >>> codes.shape, float16.reconstruct(codes)[0].tolist()
    ((2, 8), [1.0, 1.0, 1.0, 1.0])
    """

    title = "float16"

    def __init__(self, width: int, metric: str) -> None:
        super().__init__(metric)
        self.size = 2 * width

    def encode(self, vectors: Floats) -> Codes:
        """Return the bytes of the values."""
        limit = float(np.finfo(np.float16).max)
        return np.clip(vectors, -limit, limit).astype(np.float16).view(np.uint8)

    def reconstruct(self, codes: Codes) -> Floats:
        """Return the values."""
        return codes.view(np.float16).astype(np.float32)


class Int8(Quantizer):
    """One of 256 equal steps between the least and the greatest value of each dimension.

    Examples
    --------
    >>> vectors = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    >>> int8 = Int8(2, "l2")
    >>> int8.fit(vectors)
    >>> float(np.abs(int8.reconstruct(int8.encode(vectors)) - vectors).max()) < 0.004
    True
    """

    title = "int8"

    def __init__(self, width: int, metric: str) -> None:
        super().__init__(metric)
        self.size = width

    @property
    def shared_size(self) -> int:
        """Return the bytes of the least values and the steps."""
        return 8 * self.size

    def fit(self, sample: Floats) -> None:
        """Find the range of each dimension."""
        self.least: Floats = sample.min(0)
        step = (sample.max(0) - self.least) / np.float32(255)
        self.step: Floats = np.where(step > 0, step, np.float32(1))

    def encode(self, vectors: Floats) -> Codes:
        """Return the number of the step of each value."""
        steps: Floats = np.rint((vectors - self.least) / self.step)
        return np.clip(steps, 0, 255).astype(np.uint8)

    def reconstruct(self, codes: Codes) -> Floats:
        """Return the value of each step."""
        return codes.astype(np.float32) * self.step + self.least


class FaissPq(Quantizer):
    """Product quantization of faiss (Jegou, Douze and Schmid 2011): M parts, one of 256 centroids for each.

    With `rotate` the parts are those of rotated vectors (OPQ of Ge, He, Ke and Sun 2013). Vectors are padded with zeros to
    a multiple of M.
    """

    def __init__(self, width: int, metric: str, size: int, *, rotate: bool = False, seed: int = 0) -> None:
        super().__init__(metric)
        self.size, self.rotate, self.seed = size, rotate, seed
        self.title = "OPQ" if rotate else "PQ"
        self.padded = -(-width // size) * size
        self._rotation: Any = None

    @property
    def shared_size(self) -> int:
        """Return the bytes of the centroids and of the rotation."""
        return 4 * self.padded * (CENTROIDS + (self.padded if self.rotate else 0))

    def fit(self, sample: Floats) -> None:
        """Learn the rotation and the centroids."""
        faiss = import_faiss()
        if len(sample) < CENTROIDS:
            raise InputError(f"{self.title} needs at least {CENTROIDS} vectors to learn from, not {len(sample)}.")
        if self.rotate:
            self._rotation = faiss.OPQMatrix(self.padded, self.size)
            self._rotation.niter = OPQ_ITERATIONS
            start = faiss.ProductQuantizer(self.padded, self.size, 8)
            self._settle(start)
            self._rotation.pq = start
            self._rotation.train(self._pad(sample))
        self._index = faiss.IndexPQ(self.padded, self.size, 8)
        self._settle(self._index.pq)
        self._index.train(self.transform(sample))

    def _settle(self, pq: Any) -> None:
        pq.cp.min_points_per_centroid = 1  # faiss prints a warning for fewer than 39
        pq.cp.seed = self.seed + 1

    def _pad(self, vectors: Floats) -> Floats:
        missing = self.padded - vectors.shape[1]
        return np.ascontiguousarray(np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors)

    def transform(self, queries: Floats) -> Floats:
        """Return padded and rotated vectors."""
        padded = self._pad(queries)
        rotated: Floats = padded if self._rotation is None else self._rotation.apply(padded)
        return rotated

    def encode(self, vectors: Floats) -> Codes:
        """Return the numbers of the nearest centroids."""
        codes: Codes = self._index.sa_encode(self.transform(vectors))
        return codes

    def reconstruct(self, codes: Codes) -> Floats:
        """Return the centroids."""
        vectors: Floats = self._index.sa_decode(codes)
        return vectors


class RaBitQ(Quantizer):
    """Signs of randomly rotated vectors with two corrections for each vector (RaBitQ of Gao and Long 2024).

    For o = x - mean and y = P'o, where P (width, dims) has orthonormal columns, the signs s of y and f = ||y||^2 / <y, s>
    give the unbiased estimate <o, p> = f <s, P'p>. Stored are s, f, and the part of the distance that depends on x only:
    ||o||^2, or ||o||^2 - ||x||^2 for inner products. With dims < width, P spans the first principal directions.

    Examples
    --------
    >>> RaBitQ(100, "l2").size  # 100 bits are 13 bytes, the corrections 8
    21
    """

    def __init__(self, width: int, metric: str, dims: int | None = None, *, seed: int = 0) -> None:
        super().__init__(metric)
        self.dims, self.seed = dims or width, seed
        self.title = "RaBitQ" if self.dims == width else "PCA + RaBitQ"
        self.size = -(-self.dims // 8) + CORRECTION_BYTES
        self.width = width

    @property
    def shared_size(self) -> int:
        """Return the bytes of the projection and of the mean."""
        return 4 * self.width * (self.dims + 1)

    def fit(self, sample: Floats) -> None:
        """Compute the mean and the projection."""
        self.mean = sample.mean(0, dtype=np.float64).astype(np.float32)
        rotation = random_rotation(self.dims, generator(self.seed, "rabitq"))
        if self.dims < self.width:
            centered = sample - self.mean
            directions = np.linalg.eigh(centered.T @ centered)[1][:, -self.dims :]
            rotation = directions @ rotation
        self.projection = rotation.astype(np.float32)

    def transform(self, queries: Floats) -> Floats:
        """Return P'(q - mean)."""
        projected: Floats = (queries - self.mean) @ self.projection
        return projected

    def encode(self, vectors: Floats) -> Codes:
        """Return the signs and the corrections."""
        centered, projected = vectors - self.mean, self.transform(vectors)
        totals = np.abs(projected).sum(1)
        squares = np.square(projected).sum(1)
        factors = np.divide(squares, totals, out=np.zeros_like(totals), where=totals > 0)
        offsets = np.square(centered).sum(1)
        if self.metric != "l2":
            offsets -= np.square(vectors).sum(1)
        corrections = np.stack([offsets, factors], axis=1).astype(np.float32).view(np.uint8)
        return np.concatenate([np.packbits(projected >= 0, axis=1), corrections], axis=1)

    def decode(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return f s (N, dims) and the offsets (N,)."""
        corrections = np.ascontiguousarray(codes[:, -CORRECTION_BYTES:]).view(np.float32)
        signs = np.unpackbits(codes[:, :-CORRECTION_BYTES], axis=1, count=self.dims).astype(np.float32)
        signs *= 2
        signs -= 1
        signs *= corrections[:, 1:]
        return signs, corrections[:, 0]

    def reconstruct(self, codes: Codes) -> Floats:
        """Return f s (N, dims)."""
        return self.decode(codes)[0]


def import_faiss() -> Any:
    """Return the module faiss; without it an error says how to install it."""
    try:
        import faiss
    except ImportError:
        raise InputError("Product quantization needs faiss: pip install 'proxyhash[approximate]'.") from None
    return faiss
