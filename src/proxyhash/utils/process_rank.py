"""Rank of this process, from RANK and WORLD_SIZE as torchrun and most schedulers set them."""

import os
from dataclasses import dataclass

from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class ProcessRank:
    """Rank `rank` of `world` processes, counted from 0; `local` counts those on this machine."""

    rank: int = 0
    world: int = 1
    local: int = 0

    def has(self, number: int) -> bool:
        """Return whether this process handles work item `number`."""
        return number % self.world == self.rank


def get_process_rank() -> ProcessRank:
    """Return the rank from the environment, or rank 0 of 1 without it."""
    try:
        rank, world, local = (int(os.environ.get(name, default)) for name, default in _NAMES.items())
    except ValueError:
        raise InputError("RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers, as torchrun sets them.") from None
    if not 0 <= rank < world:
        raise InputError(f"RANK is {rank}, but WORLD_SIZE is {world}: ranks go from 0 to one below it.")
    return ProcessRank(rank, world, local)


_NAMES = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
