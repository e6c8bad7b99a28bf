"""Several processes, one training: each embeds its share of a batch, all see the whole batch's loss.

Every process computes the same loss of the whole batch, but only its own share of the embeddings leads back to the network.
So the network's gradients add up over processes to the single process's, for any loss, triplets across processes included.
"""

import atexit
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

TIMEOUT = timedelta(days=7)  # while the first process extracts features, the others wait

Result = TypeVar("Result")
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class DistributedContext:
    """Which of how many processes this is."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Return whether this process writes."""
        return self.rank == 0

    def shard(self, count: int) -> slice:
        """Return this process's share of `count` items: all shares together are all items, none twice."""
        return slice(self.rank, count, self.world_size)

    def gather(self, rows: Tensor, count: int) -> Tensor:
        """Return the rows of all processes in the order of the `count` items they were shares of, with gradient to ours."""
        if self.world_size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, count, self.rank, self.world_size)  # type: ignore[no-untyped-call]
        return gathered

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of the network, of which every process has its share."""
        self._reduce(parameters, 1.0)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients of what every process has whole (an objective's own parameters)."""
        self._reduce(parameters, 1.0 / self.world_size)

    def _reduce(self, parameters: Iterable[nn.Parameter], factor: float) -> None:
        if self.world_size == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                dist.all_reduce(gradient)
                parameter.grad = gradient.mul_(factor)

    def main_process_first(self, work: Callable[[], Result]) -> Result:
        """Do the work in the first process, then in the others: what it wrote, they find."""
        if not self.is_main_process:
            self.barrier()
        result = work()
        if self.is_main_process:
            self.barrier()
        return result

    def all_reduce_sum(self, rows: NDArray[Number]) -> NDArray[Number]:
        """Return an array of which each process filled its part, all others' parts being zero."""
        if self.world_size == 1:
            return rows
        whole = torch.from_numpy(rows.copy())
        dist.all_reduce(whole)
        total: NDArray[Number] = whole.numpy()
        return total

    def barrier(self) -> None:
        """Wait for all."""
        if self.world_size > 1:
            dist.barrier()


def init_distributed() -> DistributedContext:
    """Join the processes that `torchrun` started, or be alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return DistributedContext()
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
        atexit.register(dist.destroy_process_group)  # its threads may abort a process that is done
    return DistributedContext(dist.get_rank(), world)


class _Gather(torch.autograd.Function):
    """All rows forward; backward, the part of the gradient that belongs to our rows. Shares differ by one row at most."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, count: int, rank: int, world: int) -> Tensor:
        ctx.rank, ctx.world = rank, world
        longest = -(-count // world)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        whole = rows.new_empty(count, *rows.shape[1:])
        for other, part in enumerate(parts):
            place = whole[other::world]
            place.copy_(part[: len(place)])
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient[ctx.rank :: ctx.world], None, None, None
