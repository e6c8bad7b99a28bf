"""The pieces of a collection encoded by many processes: each writes its own shards, and goes on where it stopped."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyhash.data.shards import Piece
from proxyhash.data.skipped import Problems
from proxyhash.models.code_shards import Shard, read_shard, shard_path, write_shard
from proxyhash.models.hasher import Hasher
from proxyhash.models.storage import fingerprint
from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import ProcessRank

Counted = Callable[[int, int], None]
"""Is told how many shards of how many are done."""


@dataclass(frozen=True)
class Encoded:
    """Number of shards that a process wrote, and of those that existed."""

    written: int
    there: int
    images: int  # encoded now
    seconds: float


def encode_pieces(
    hasher: Hasher,
    pieces: Sequence[Piece],
    folder: Path,
    problems: Problems,
    *,
    rank: ProcessRank | None = None,
    counted: Counted = lambda *_: None,
) -> Encoded:
    """Encode this process's share of the pieces to `folder`, a shard for each.

    A shard that is whole, of this model and of images that have not changed, stays. No process waits for another: whichever
    share is missing is made by running the same command again, with as many processes as one likes.
    """
    if hasher.folder is None:
        raise InputError("Save the model first: shards say by its folder which model they are of.")
    rank, model, begun = rank or ProcessRank(), fingerprint(hasher.folder), time.monotonic()
    mine = [piece for piece in pieces if rank.has(piece.number)]
    written = images = 0
    for done, piece in enumerate(mine):
        counted(done, len(mine))
        found = piece.fingerprint()
        if is_done(shard_path(folder, piece.number, piece.of), model, found):
            continue
        shard = _encode(hasher, piece, model, found, problems)
        write_shard(folder, shard)
        written, images = written + 1, images + len(shard)
    counted(len(mine), len(mine))
    return Encoded(written, len(mine) - written, images, time.monotonic() - begun)


def is_done(path: Path, model: str, piece: str) -> bool:
    """Return whether a shard is there, whole, and what would be made again."""
    if not path.is_file():
        return False
    try:
        shard = read_shard(path)
    except InputError:
        return False
    return (shard.model, shard.piece) == (model, piece)


def _encode(hasher: Hasher, piece: Piece, model: str, found: str, problems: Problems) -> Shard:
    images, labels = piece.load()
    kept, nu = hasher.embed_readable(images, problems)
    keys = [images.key(int(index)) for index in kept]
    own = [labels[int(index)] for index in kept]
    left_out = len(images) - len(kept)
    return Shard(hasher.head.codes(nu), keys, own, hasher.bits, model, found, piece.number, piece.of, left_out)
