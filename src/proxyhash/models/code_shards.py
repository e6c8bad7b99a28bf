"""Shards of codes: files with checksums that several processes write."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.codes.files import arrays_sha256, check_unpacked_size
from proxyhash.data.shards import ImageShard
from proxyhash.data.skipped import SkippedItems
from proxyhash.models.storage import fingerprint
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.legacy_names import SHARD_FORMAT, SHARD_HEADER, upgrade_shard_header
from proxyhash.utils.process_rank import ProcessRank
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

FORMAT = "proxyhash.shard/2"
HEADER = "header"  # the array that holds the other fields as JSON


@dataclass(frozen=True, eq=False)
class CodeShard:
    """Packed codes (n, bytes) of one shard of images."""

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


_FIELDS = ("bits", "model", "images", "number", "total", "num_skipped")


def shard_path(folder: Path, number: int, total: int) -> Path:
    """Return the path of a shard."""
    return folder / f"{number:06d}-of-{total:06d}.npz"


def write_shard(folder: Path, shard: CodeShard) -> Path:
    """Write a shard, whole or not at all."""
    header = {"format": FORMAT, REQUIRES: RELEASE, **{name: getattr(shard, name) for name in _FIELDS}}
    arrays = {
        "codes": shard.codes,
        "bits": np.int64(shard.bits),
        "keys": _texts(shard.keys),
        "label_lists": _texts([json.dumps(labels, ensure_ascii=False) for labels in shard.labels]),
        HEADER: np.array(json.dumps(header)),
    }
    path = shard_path(folder, shard.number, shard.total)
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, **arrays, sha256=np.array(arrays_sha256(arrays)))  # type: ignore[arg-type]
    return path


def read_shard(path: Path) -> CodeShard:
    """Read a shard and verify its checksum."""
    try:
        check_unpacked_size(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        expected = str(arrays.pop("sha256"))
        header = upgrade_shard_header(json.loads(str(arrays[HEADER if HEADER in arrays else SHARD_HEADER])))
        is_intact = arrays_sha256(arrays) == expected
        labels = [_labels(text) for text in arrays["label_lists"].tolist()] if is_intact else []
        codes, keys = arrays["codes"], arrays["keys"].tolist()
    except InputError:
        raise
    except Exception as error:  # a damaged file makes its reader raise nearly anything
        raise InputError(f"{path} is not a whole shard of codes ({type(error).__name__}); encode it again.") from error
    if not is_intact:
        raise InputError(f"{path} is damaged: its checksum differs; encode it again.")
    check_format(path, header.get("format"), (FORMAT, SHARD_FORMAT), header.get(REQUIRES))
    if missing := [name for name in _FIELDS if name not in header]:
        raise InputError(f"{path} is not a whole shard of codes: its header lacks {missing[0]}; encode it again.")
    return _check(CodeShard(codes, keys, labels, **{name: header[name] for name in _FIELDS}), path)


def _texts(texts: Sequence[str]) -> NDArray[np.str_]:
    return np.array(texts, dtype=np.str_) if texts else np.zeros(0, "U1")


def _labels(text: str) -> tuple[str, ...]:
    labels = json.loads(text)
    if not isinstance(labels, list):
        raise TypeError("labels are a list")
    return tuple(labels)


def _check(shard: CodeShard, path: Path) -> CodeShard:
    """Return a shard whose values fit together; its checksum may come from whoever wrote wrong values."""
    for name, least in (("bits", 1), ("number", 0), ("total", 1), ("num_skipped", 0)):
        check_int(f"{path}: {name}", getattr(shard, name), least)
    codes, texts = shard.codes, (shard.model, shard.images, *shard.keys, *chain(*shard.labels))
    fits = codes.dtype == np.uint8 and codes.ndim == 2 and codes.shape[1] == -(-shard.bits // 8)
    if (
        not fits
        or not len(codes) == len(shard.keys) == len(shard.labels)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise InputError(f"{path} is not a whole shard of codes: its arrays do not fit together; encode it again.")
    return shard


@dataclass(frozen=True)
class EncodeResult:
    """Counts of one process: shards that it wrote, shards that existed, images that it encoded."""

    written: int
    existing: int
    images: int
    seconds: float


def encode_shards(
    hasher: "Hasher",
    shards: Sequence[ImageShard],
    folder: Path,
    skipped: SkippedItems,
    *,
    rank: ProcessRank | None = None,
    on_shard: Callable[[int, int], None] = lambda *_: None,
) -> EncodeResult:
    """Encode this process's share of the shards of images to `folder`.

    A complete shard of this model and of unchanged images stays. Processes do not wait for each other: running the same
    command again, with any number of processes, writes the missing shards. `on_shard(done, total)` is called before each
    shard and at the end.
    """
    if hasher.folder is None:
        raise InputError("Save the model first: shards name their model by the fingerprint of its folder.")
    rank, model, begun = rank or ProcessRank(), fingerprint(hasher.folder), time.monotonic()
    mine = [shard for shard in shards if rank.has(shard.number)]
    written = images = 0
    for done, shard in enumerate(mine):
        on_shard(done, len(mine))
        fingerprint_now = shard.fingerprint()
        if is_done(shard_path(folder, shard.number, shard.total), model, fingerprint_now):
            continue
        encoded = _encode(hasher, shard, model, fingerprint_now, skipped)
        write_shard(folder, encoded)
        written, images = written + 1, images + len(encoded)
    on_shard(len(mine), len(mine))
    return EncodeResult(written, len(mine) - written, images, time.monotonic() - begun)


def is_done(path: Path, model: str, images: str) -> bool:
    """Return whether a complete shard of this model and of these images exists."""
    if not path.is_file():
        return False
    try:
        shard = read_shard(path)
    except InputError:
        return False
    return (shard.model, shard.images) == (model, images)


def _encode(hasher: "Hasher", shard: ImageShard, model: str, fingerprint_now: str, skipped: SkippedItems) -> CodeShard:
    images, labels = shard.load(skipped)
    kept, embeddings = hasher.embed(images, on_error="skip", skipped=skipped)
    return CodeShard(
        hasher.head.encode(embeddings),
        [images.key(int(index)) for index in kept],
        [labels[int(index)] for index in kept],
        hasher.bits,
        model,
        fingerprint_now,
        shard.number,
        shard.total,
        len(images) - len(kept),
    )
