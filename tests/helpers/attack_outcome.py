"""What an attack does to a service: its memory, and the answers that an honest client gets meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.attacks import MB, Answers, HonestClient, Target, attack_beside
from helpers.process_memory import MemoryWatch

MAX_GROWTH_MB = 300
SETTLE_SECONDS = 3.0  # between the end of an attack and the last look at the memory


@dataclass(frozen=True)
class Outcome:
    """Memory of each group of processes in MB, the answers of the honest client, and what the attacker sent and got."""

    before: dict[str, float]
    peak: dict[str, float]
    after: dict[str, float]
    answers: Answers
    attacker: Counter[str]

    @property
    def growth(self) -> float:
        """Return by how many MB all processes together grew at most."""
        return sum(self.peak.values()) - sum(self.before.values())

    @property
    def is_held(self) -> bool:
        """Return whether memory stayed within the limit and at least 95 % of the honest requests were answered."""
        answered, failed = len(self.answers.seconds), sum(self.answers.errors.values())
        return self.growth < MAX_GROWTH_MB and answered >= 19 * failed and answered > 0


async def measure_attack(name: str, target: Target, processes: Mapping[str, int], seconds: float) -> Outcome:
    """Attack a service for some seconds, while an honest client asks and the memory of its processes is sampled."""
    watch = MemoryWatch(processes)
    sampling = asyncio.create_task(watch.run())
    attacker, answers = await asyncio.gather(attack_beside(name, target, seconds), HonestClient(target).run(seconds))
    await asyncio.sleep(SETTLE_SECONDS)
    sampling.cancel()
    await watch.sample()
    before, peak, after = (
        {group: size / MB for group, size in sizes.items()} for sizes in (watch.before, watch.peak, watch.last)
    )
    return Outcome(before, peak, after, answers, attacker)
