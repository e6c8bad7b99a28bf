"""Index sets of a split: training, validation, queries and database."""

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.cutoff import Denominator, map_name
from proxyhash.data.images import Indices

_SETS = ("train", "validation", "validation_database", "query", "database")


@dataclass(frozen=True)
class SplitIndices:
    """Index sets of a protocol's rule, before validation is held out, and a note on its choices."""

    train: Indices
    query: Indices
    database: Indices
    note: str = ""


@dataclass(frozen=True)
class Split:
    """Index sets into a data set, and the cutoff and the denominator of mAP.

    Settings are tuned with `validation` as queries against `validation_database`, both out of the training set; `query` and
    `database` are for the final evaluation. `classes` are the classes (or tags) of the training set.
    """

    dataset: str
    protocol: str
    version: int
    train: Indices
    validation: Indices
    validation_database: Indices
    query: Indices
    database: Indices
    classes: NDArray[np.int64]
    top: int | None = None
    seed: int = 0
    note: str = ""
    denominator: Denominator = "relevant"

    @property
    def map_name(self) -> str:
        """Return the name of mAP by the protocol, such as `mAP@5000[retrieved]`."""
        return map_name(self.top, self.denominator)

    @property
    def training_set(self) -> Indices:
        """Return all training images, the validation set included."""
        return np.unique(np.concatenate([self.train, self.validation, self.validation_database]))

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits of training set, queries and database: runs with equal fingerprints are comparable.

        The validation set is not included: it is a choice of the run, not of the protocol.
        """
        digest = hashlib.sha256()
        for name in ("training_set", "query", "database"):
            indices = np.ascontiguousarray(getattr(self, name), "<i8")
            digest.update(f"{name}:{len(indices)};".encode() + indices.tobytes())
        return digest.hexdigest()[:16]

    def as_dict(self) -> dict[str, object]:
        """Return protocol, sizes and fingerprint, for records."""
        described = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*_SETS, "classes")}
        sizes = {name: len(getattr(self, name)) for name in _SETS}
        return {**described, "classes": len(self.classes), "sizes": sizes, "fingerprint": self.fingerprint()}

    def __repr__(self) -> str:
        """Show the protocol, the sizes and the name of mAP."""
        sizes = ", ".join(f"{len(getattr(self, name)):,} {name.replace('_', ' ')}" for name in _SETS)
        return f"Split({self.protocol}@{self.version} of {self.dataset}: {sizes}; {self.map_name})"


def drop_indices(split: Split, indices: Indices) -> Split:
    """Return a split without some images, for example those that cannot be read."""
    if not len(indices):
        return split
    kept: dict[str, Any] = {name: np.setdiff1d(getattr(split, name), indices) for name in _SETS}
    return replace(split, **kept)
