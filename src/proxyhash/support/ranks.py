"""Which of how many processes this is, as torchrun and most schedulers say it: RANK and WORLD_SIZE."""

import os
from dataclasses import dataclass

from proxyhash.support.errors import InputError


@dataclass(frozen=True)
class Rank:
    """This process is number `rank` of `world`, from 0; on its machine it is number `local`."""

    rank: int = 0
    world: int = 1
    local: int = 0

    def has(self, number: int) -> bool:
        """Return whether this process does piece `number`: every piece has one process, whatever the others do."""
        return number % self.world == self.rank


def rank_of_this_process() -> Rank:
    """Read it from the environment; without it, this process is alone."""
    try:
        rank, world, local = (int(os.environ.get(name, default)) for name, default in _NAMES.items())
    except ValueError:
        raise InputError("RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers, as torchrun sets them.") from None
    if not 0 <= rank < world:
        raise InputError(f"RANK is {rank}, but WORLD_SIZE is {world}: ranks go from 0 to one below it.")
    return Rank(rank, world, local)


_NAMES = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
