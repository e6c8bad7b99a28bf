"""Codes in a file with a checksum: what one process wrote, to be read by whoever brings the shards together."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FORMAT = "proxyhash.shard/1"


@dataclass(frozen=True, eq=False)
class CodeShard:
    """The packed `codes` (n, bytes) of one piece of a collection, and where they belong."""

    codes: Packed
    keys: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    bits: int
    model: str  # the fingerprint of the model
    images: str  # the fingerprint of the images
    number: int
    total: int
    num_skipped: int = 0  # images that could not be read

    def __len__(self) -> int:
        """Return n."""
        return len(self.codes)


def shard_path(folder: Path, number: int, total: int) -> Path:
    """Return where a shard lies."""
    return folder / f"{number:06d}-of-{total:06d}.npz"


def write_shard(folder: Path, shard: CodeShard) -> Path:
    """Write a shard, whole or not at all."""
    facts = {"format": FORMAT, "bits": shard.bits, "model": shard.model, "piece": shard.images}
    facts |= {"number": shard.number, "of": shard.total, "left_out": shard.num_skipped}
    arrays = {
        "codes": shard.codes,
        "bits": np.int64(shard.bits),
        "keys": _texts(shard.keys),
        "label_lists": _texts([json.dumps(labels, ensure_ascii=False) for labels in shard.labels]),
        "facts": np.array(json.dumps(facts)),
    }
    path = shard_path(folder, shard.number, shard.total)
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, **arrays, sha256=np.array(_digest(arrays)))  # type: ignore[arg-type]
    return path


def read_shard(path: Path) -> CodeShard:
    """Read a shard; one that is damaged is an error."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        expected = str(arrays.pop("sha256"))
        facts = json.loads(str(arrays["facts"]))
        labels = [tuple(json.loads(text)) for text in arrays["label_lists"].tolist()]
        keys = arrays["keys"].tolist()
    except Exception as error:  # whatever a damaged file makes its reader raise
        raise InputError(f"{path} is not a whole shard of codes ({type(error).__name__}); encode it again.") from error
    if facts["format"] != FORMAT or _digest(arrays) != expected:
        raise InputError(f"{path} is damaged: its checksum differs; encode it again.")
    numbers = {name: facts[name] for name in ("bits", "model", "piece", "number", "of", "left_out")}
    return CodeShard(arrays["codes"], keys, labels, **numbers)


def _texts(texts: Sequence[str]) -> NDArray[np.str_]:
    return np.array(texts, dtype=np.str_) if texts else np.zeros(0, "U1")


def _digest(arrays: dict[str, Any]) -> str:
    """Return the SHA-256 of all arrays: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{np.shape(arrays[name])};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
