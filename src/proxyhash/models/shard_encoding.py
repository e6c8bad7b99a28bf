"""The pieces of a collection encoded by many processes: each writes its own shards, and goes on where it stopped."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.data.shards import ImageShard
from proxyhash.data.skipped import SkippedItems
from proxyhash.models.code_shards import CodeShard, read_shard, shard_path, write_shard
from proxyhash.models.hasher import Hasher
from proxyhash.models.storage import fingerprint
from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import ProcessRank

Counted = Callable[[int, int], None]
"""Is told how many shards of how many are done."""


@dataclass(frozen=True)
class EncodeResult:
    """What one process did: shards that it wrote, and those that were there already."""

    written: int
    existing: int
    images: int  # encoded now
    seconds: float


def encode_shards(
    hasher: Hasher,
    shards: Sequence[ImageShard],
    folder: Path,
    skipped: SkippedItems,
    *,
    rank: ProcessRank | None = None,
    on_shard: Counted = lambda *_: None,
) -> EncodeResult:
    """Encode this process's share of the pieces to `folder`, a shard for each.

    A shard that is whole, of this model and of images that have not changed, stays. No process waits for another: whichever
    share is missing is made by running the same command again, with as many processes as one likes.
    """
    if hasher.folder is None:
        raise InputError("Save the model first: shards say by its folder which model they are of.")
    rank, model, begun = rank or ProcessRank(), fingerprint(hasher.folder), time.monotonic()
    mine = [piece for piece in shards if rank.has(piece.number)]
    written = images = 0
    for done, piece in enumerate(mine):
        on_shard(done, len(mine))
        found = piece.fingerprint()
        if is_done(shard_path(folder, piece.number, piece.total), model, found):
            continue
        shard = _encode(hasher, piece, model, found, skipped)
        write_shard(folder, shard)
        written, images = written + 1, images + len(shard)
    on_shard(len(mine), len(mine))
    return EncodeResult(written, len(mine) - written, images, time.monotonic() - begun)


def is_done(path: Path, model: str, images: str) -> bool:
    """Return whether a shard is there, whole, and what would be made again."""
    if not path.is_file():
        return False
    try:
        shard = read_shard(path)
    except InputError:
        return False
    return (shard.model, shard.images) == (model, images)


def _encode(hasher: Hasher, piece: ImageShard, model: str, found: str, problems: SkippedItems) -> CodeShard:
    images, labels = piece.load()
    kept, nu = hasher.embed_readable(images, problems)
    keys = [images.key(int(index)) for index in kept]
    own = [labels[int(index)] for index in kept]
    left_out = len(images) - len(kept)
    return CodeShard(hasher.head.encode(nu), keys, own, hasher.bits, model, found, piece.number, piece.total, left_out)
