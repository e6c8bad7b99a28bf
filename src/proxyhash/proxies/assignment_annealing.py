"""Simulated annealing of the assignment by random swaps, each evaluated in O(d)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.geometry import Floats
from proxyhash.utils.jit import jit

_STAGES = 60
# Temperatures in standard deviations of the change by a random swap: above the first nearly every swap is accepted, below
# the last almost none. The inverse temperature rises linearly, so that few swaps are spent where most are accepted.
_FIRST_TEMPERATURE = 0.35
_LAST_TEMPERATURE = 0.06
_THRESHOLDS = 4096  # a power of two; the kernel masks with one less


def num_chains(classes: int) -> int:
    """Return the number of independent chains, of which the best is kept."""
    return 4 if classes <= 300 else 2 if classes <= 2000 else 1


def swaps_per_stage(classes: int) -> int:
    """Return the number of swaps at each temperature: 70 for each pair, or as many as take about ten seconds."""
    pairs = classes * (classes - 1) // 2
    return min(70 * pairs, int(3e6 * min(1.0, 1000 / classes)))


def anneal_swaps(
    s: Floats, unit: Floats, start: NDArray[np.int64], random: np.random.Generator, progress: Callable[[float], None]
) -> NDArray[np.int64]:
    """Anneal an assignment (C,) from `start`; `s` (C, C) has a zero diagonal, `unit` (C, d) has unit rows.

    The Metropolis rule accepts a change c with probability exp(c / T), that is if c >= T log u with u uniform. The
    thresholds T log u are drawn in advance, so that a swap needs one comparison.
    """
    s, unit = np.ascontiguousarray(s, np.float32), np.ascontiguousarray(unit, np.float32)
    assignment = start.copy()
    proposals = swaps_per_stage(len(s))
    scale = _typical_change(s, unit[assignment], random)
    state = random.integers(1, 2**63, dtype=np.uint64)
    for stage, temperature in enumerate(1 / np.linspace(1 / _FIRST_TEMPERATURE, 1 / _LAST_TEMPERATURE, _STAGES), start=1):
        thresholds = (-scale * temperature * random.standard_exponential(_THRESHOLDS)).astype(np.float32)
        placed = unit[assignment]
        state = np.uint64(_anneal_stage(s, placed, s @ placed, assignment, thresholds, proposals, state))
        progress(stage / _STAGES)
    return assignment


def _typical_change(s: Floats, placed: Floats, random: np.random.Generator) -> float:
    """Return the standard deviation of the change in half the gain over 1,000 random swaps."""
    p, q = random.integers(len(s), size=(2, 1000))
    pull, step = s @ placed, placed[q] - placed[p]
    changes = np.einsum("ij,ij->i", step, pull[p] - pull[q]) - s[p, q] * np.square(step).sum(axis=1)
    return float(changes.std()) or 1.0


@jit(fastmath=True, nogil=True)
def _anneal_stage(
    s: Floats,
    placed: Floats,
    pull: Floats,
    assignment: NDArray[np.int64],
    thresholds: Floats,
    proposals: int,
    state: np.uint64,
) -> np.uint64:
    """Try `proposals` random swaps, keeping `placed` (C, d), `pull` = s @ placed and `assignment` up to date in place.

    `state` is the state of a 64-bit xorshift generator, which selects both classes and the threshold; it is returned.
    """
    classes, bits = placed.shape
    step = np.empty(bits, np.float32)
    for _ in range(proposals):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        p = ((state >> np.uint64(44)) * np.uint64(classes)) >> np.uint64(20)
        q = (((state >> np.uint64(24)) & np.uint64(0xFFFFF)) * np.uint64(classes)) >> np.uint64(20)
        similar = s[p, q]
        change = np.float32(0)
        for k in range(bits):
            move = placed[q, k] - placed[p, k]
            change += move * (pull[p, k] - pull[q, k] - similar * move)
        if change < thresholds[state & np.uint64(_THRESHOLDS - 1)] or p == q:
            continue
        for k in range(bits):
            step[k] = placed[q, k] - placed[p, k]
            placed[p, k], placed[q, k] = placed[q, k], placed[p, k]
        for i in range(classes):
            share = s[p, i] - s[q, i]
            for k in range(bits):
                pull[i, k] += share * step[k]
        assignment[p], assignment[q] = assignment[q], assignment[p]
    return state
