"""Proxy sets and their files."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from proxyhash.codes.files import arrays_sha256
from proxyhash.proxies.binary import is_binary
from proxyhash.proxies.quality import AssignmentQuality, ProxyQuality
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format

_FORMAT = "proxyhash.proxies/2"
_WITHOUT_CHECKSUM = "proxyhash.proxies/1"  # only of its weights


@dataclass(frozen=True, eq=False)
class ProxySet:
    """One proxy for each class: `weights` (C, d) float32, rows of norm sqrt(d), read-only.

    Examples
    --------
    >>> from proxyhash import design_proxies
    >>> proxies = design_proxies(classes=4, bits=8, kind="code")
    >>> proxies.classes, proxies.bits, int(proxies.quality.min_distance)
    (4, 8, 5)
    """

    weights: NDArray[np.float32]
    kind: str
    seed: int
    quality: ProxyQuality

    def __post_init__(self) -> None:
        """Make the weights read-only, because their quality was measured."""
        self.weights.setflags(write=False)

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return int(self.weights.shape[0])

    @property
    def bits(self) -> int:
        """d, the length of a proxy."""
        return int(self.weights.shape[1])

    @property
    def binary(self) -> bool:
        """Return whether every weight is +1 or -1."""
        return is_binary(self.weights)

    @property
    def trainable(self) -> bool:
        """Return whether these weights are initial values that training changes (kind `learned`)."""
        return self.kind == "learned"

    def as_dict(self) -> dict[str, Any]:
        """Return kind, sizes and quality, ready for JSON."""
        return {
            "kind": self.kind,
            "classes": self.classes,
            "bits": self.bits,
            "seed": self.seed,
            "binary": self.binary,
            "quality": self.quality.as_dict(),
        }

    def __repr__(self) -> str:
        """Return one line with the kind, the sizes and the distances."""
        q = self.quality
        return (
            f"ProxySet(kind={self.kind!r}, classes={self.classes}, bits={self.bits}, seed={self.seed}, "
            f"min_distance={q.min_distance:.4g} of at most {q.distance_bound:.4g} bits, nearest_mean={q.nearest_mean:.4g})"
        )

    def __str__(self) -> str:
        """Return the quality table as plain text."""
        rows = self.describe()
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.title, *(f"  {name:<{width}}  {value}" for name, value in rows)])

    @property
    def title(self) -> str:
        """Kind, sizes and seed in words."""
        return f"{self.kind} proxies: {self.classes:,} classes in {self.bits} bits (seed {self.seed})"

    def describe(self) -> list[tuple[str, str]]:
        """Return the rows of the quality table: a name and a value with its unit."""
        q = self.quality
        rows = [
            ("minimal distance", f"{q.min_distance:.4g} bits (no set has more than {q.distance_bound:.4g})"),
            ("nearest other class", f"{q.nearest_mean:.4g} bits on average, {q.nearest_min:.4g} at least"),
            ("margin M / K", f"{2 * q.min_distance / self.bits:.4g}"),
            ("largest cosine", f"{q.max_cosine:.4f}"),
            ("bit balance", f"{q.bit_balance:.3f} (largest |mean| of a bit)"),
            ("constant bits", str(q.constant_bits)),
        ]
        if q.assignment:
            a = q.assignment
            correlation = "undefined" if np.isnan(a.correlation) else f"{a.correlation:.3f}"
            rows += [
                ("assignment objective", f"{a.objective:.6g} (random {a.random:.6g}, bound {a.bound:.6g})"),
                ("share of the bound's gain", f"{100 * a.share:.1f} %"),
                ("similarity correlation", correlation),
            ]
        return rows

    def save(self, path: str | Path) -> None:
        """Write the set to a safetensors file, atomically."""
        tensors: dict[str, NDArray[Any]] = {
            "weights": np.ascontiguousarray(self.weights),
            "nearest_class": self.quality.nearest_class,
            "nearest_distance": self.quality.nearest_distance,
        }
        header = {
            "format": _FORMAT,
            REQUIRES: RELEASE,
            "kind": self.kind,
            "seed": str(self.seed),
            "quality": json.dumps(self.quality.as_dict()),
            "sha256": _digest(self.weights),
        }
        header["content_sha256"] = _content_digest(header, tensors)
        with atomic_write(Path(path)) as temporary:
            save_file(tensors, temporary, metadata=header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a set written by `save`; other files raise an `InputError`."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"There is no file {path}.")
        try:
            with safe_open(path, framework="np") as handle:
                header = handle.metadata() or {}
                check_format(path, header.get("format"), (_FORMAT, _WITHOUT_CHECKSUM), header.get(REQUIRES))
                tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
            return cls._from_parts(header, tensors)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is not a proxy set: {_one_line(error)}.") from error

    @classmethod
    def _from_parts(cls, header: dict[str, str], tensors: dict[str, Any]) -> Self:
        weights = tensors["weights"]
        if weights.ndim != 2 or weights.dtype != np.float32 or len(weights) < 2:
            raise ValueError("its weights are not a float32 matrix")
        if _digest(weights) != header["sha256"]:
            raise ValueError("its weights do not match their checksum")
        if header["format"] == _FORMAT and header.get("content_sha256") != _content_digest(header, tensors):
            raise ValueError("its content does not match its checksum")
        if not np.isfinite(weights).all():
            raise ValueError("its weights hold a number that is not finite")
        for name, kind in (("nearest_class", "i"), ("nearest_distance", "f")):
            if tensors[name].shape != weights.shape[:1] or tensors[name].dtype.kind != kind:
                raise ValueError(f"{name} has not one number for each class")
        numbers = json.loads(header["quality"])
        if not all(type(numbers[name]) in (int, float) for name in _QUALITY):
            raise ValueError("its quality is not given in numbers")
        quality = ProxyQuality(
            min_distance=numbers["min_distance"],
            distance_bound=numbers["distance_bound"],
            nearest_class=tensors["nearest_class"],
            nearest_distance=tensors["nearest_distance"],
            max_cosine=numbers["max_cosine"],
            bit_balance=numbers["bit_balance"],
            constant_bits=numbers["constant_bits"],
            assignment=_assignment(numbers["assignment"]),
        )
        return cls(weights, header["kind"], int(header["seed"]), quality)


_QUALITY = ("min_distance", "distance_bound", "max_cosine", "bit_balance", "constant_bits")


def _content_digest(header: dict[str, str], tensors: dict[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of all tensors and of all fields of a header but this one."""
    fields = json.dumps({name: value for name, value in header.items() if name != "content_sha256"}, sort_keys=True)
    return hashlib.sha256(f"{fields};{arrays_sha256(tensors)}".encode()).hexdigest()


def _assignment(numbers: dict[str, float | None] | None) -> AssignmentQuality | None:
    if numbers is None:
        return None
    value = {name: float("nan") if number is None else number for name, number in numbers.items()}
    return AssignmentQuality(value["objective"], value["random"], value["bound"], value["correlation"])


def _digest(weights: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def _one_line(error: Exception) -> str:
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split()).rstrip(".")
