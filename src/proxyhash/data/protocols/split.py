"""Index sets of a split: training, validation, queries and database."""

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Index sets into a data set, and the cutoff of its mAP.

    Everything is tuned with `validation` as queries against `validation_database`, both out of the training set; `query`
    and `database` are for the final number. `classes` are the classes (or tags) that training may see.
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

    @property
    def training_set(self) -> Indices:
        """Return all images that a final training may use: with those that were held out for tuning."""
        return np.unique(np.concatenate([self.train, self.validation, self.validation_database]))

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits of what is learned from, asked and searched: runs with equal ones are comparable.

        What is held out for tuning does not count: it is a choice of the run, not of the protocol.
        """
        digest = hashlib.sha256()
        for name in ("training_set", "query", "database"):
            indices = np.ascontiguousarray(getattr(self, name), "<i8")
            digest.update(f"{name}:{len(indices)};".encode() + indices.tobytes())
        return digest.hexdigest()[:16]

    def as_dict(self) -> dict[str, object]:
        """Return what a result must say about its protocol."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*_SETS, "classes")}
        sizes = {name: len(getattr(self, name)) for name in _SETS}
        return {**facts, "classes": len(self.classes), "sizes": sizes, "fingerprint": self.fingerprint()}

    def __repr__(self) -> str:
        """Show the protocol and the sizes."""
        sizes = ", ".join(f"{len(getattr(self, name)):,} {name.replace('_', ' ')}" for name in _SETS)
        return f"Split({self.protocol}@{self.version} of {self.dataset}: {sizes}; top {self.top or 'all'})"


def drop_indices(split: Split, indices: Indices) -> Split:
    """Return a split without some images, for example those that cannot be read."""
    if not len(indices):
        return split
    kept: dict[str, Any] = {name: np.setdiff1d(getattr(split, name), indices) for name in _SETS}
    return replace(split, **kept)
