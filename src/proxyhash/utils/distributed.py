"""Collective operations of the processes that torchrun starts.

In training every process computes the loss of the whole batch, but only the embeddings of its own shard have gradients to
the network. So the sum of the gradients over processes is that of one process for any loss, also for triplets across shards.
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

TIMEOUT = timedelta(days=7)  # the other processes wait while the main process extracts features

Result = TypeVar("Result")
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class DistributedContext:
    """Rank of this process and the number of processes."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Return whether this is the process that writes files and prints."""
        return self.rank == 0

    def shard(self, count: int) -> slice:
        """Return the shard of `count` items that this process handles; every item is in one shard."""
        return slice(self.rank, count, self.world_size)

    def all_gather(self, rows: Tensor, count: int) -> Tensor:
        """Gather the rows of all shards in the order of the `count` items; gradients flow to the rows of this process."""
        if self.world_size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, count, self.rank, self.world_size)  # type: ignore[no-untyped-call]
        return gathered

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients of the network over processes."""
        self._reduce(parameters, 1.0)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients of parameters for which every process has the whole gradient, those of a loss."""
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
        """Run `work` in the main process, then in the others, which find its files."""
        if not self.is_main_process:
            self.barrier()
        result = work()
        if self.is_main_process:
            self.barrier()
        return result

    def all_reduce_sum(self, rows: NDArray[Number]) -> NDArray[Number]:
        """Return the sum of an array over processes."""
        if self.world_size == 1:
            return rows
        whole = torch.from_numpy(rows.copy())
        dist.all_reduce(whole)
        total: NDArray[Number] = whole.numpy()
        return total

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world_size > 1:
            dist.barrier()


def init_distributed() -> DistributedContext:
    """Join the processes that `torchrun` started; without it the context has one process."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return DistributedContext()
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
        atexit.register(dist.destroy_process_group)  # its threads may abort a finished process
    return DistributedContext(dist.get_rank(), world)


class _Gather(torch.autograd.Function):
    """Gather all rows forward, and return the gradient of the own rows backward; shards differ by one row at most."""

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
