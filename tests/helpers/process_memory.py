"""Memory of a process and its descendants."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def descendants(process: int) -> list[int]:
    """Return a process and all processes below it."""
    children: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (task / "children").read_text(encoding="ascii").split())
    return [process, *(below for child in children for below in descendants(child))]


def memory_bytes(process: int) -> int:
    """Return the proportional set size of a process without pages of files, which the kernel can drop.

    A page that several processes share counts once over all of them.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # the process has ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def tree_bytes(process: int) -> int:
    """Return the memory of a process and all processes below it."""
    return sum(map(memory_bytes, descendants(process)))


class MemoryWatch:
    """Bytes of some processes with their descendants: at first, and the highest and the last since then."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self.before = self.peak = self.last = self._sample()

    async def run(self, every: float = 0.25) -> None:
        """Sample until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(every)

    async def sample(self) -> None:
        """Take one sample."""
        self.last = await asyncio.to_thread(self._sample)
        self.peak = {name: max(size, self.last[name]) for name, size in self.peak.items()}

    def _sample(self) -> dict[str, int]:
        return {name: tree_bytes(process) for name, process in self._processes.items()}
