"""Speed of scanning codes of 16 to 1024 bits, against faiss's IndexBinaryFlat and the bandwidth of the memory.

python benchmarks/flat_search.py                      everything, about ten minutes on two cores
python benchmarks/flat_search.py --only batch,single  some of: batch, single

Each side runs alone in a process of its own, in alternation; a number is the best of five turns. "Ours" is a flat segment of
an index, whose codes are stored as bit planes; "plain" is `codes.top_k` on an array, which is converted on the way. "rows"
compares codes word by word (vpopcntq with AVX-512), part by part so that all queries read them from the first-level cache.
On machines without AVX-512 the targets of ratios to faiss are half of those with it.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bitsliced.llvm_ops import WIDE_WORDS
from proxyhash.utils.parallel import available_threads
from reporting import Row, options_of, run

BATCH = {16: (4, 400), 32: (4, 400), 64: (4, 400), 128: (2, 400), 256: (1, 400), 512: (1, 200), 1024: (0.5, 200)}
"""millions of codes and queries, by bits"""
SINGLE = {32: 16, 64: 16, 128: 8, 256: 4, 512: 2, 1024: 1}
"""millions of codes: 64 to 128 MB, beyond the caches"""
BATCH_TARGETS = {16: 37, 32: 12, 64: 12.6, 128: 4, 256: 2, 512: 1.5, 1024: 1.5}  # times faiss, with AVX-512
TURNS = 5
REPEATS, SINGLE_REPEATS = 3, 20  # searches in a turn
HALF = 1.0 if WIDE_WORDS == 8 else 0.5

Search = Callable[[], object]


def random_codes(count: float, bits: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (round(count), bits // 8), dtype=np.uint8)


def faiss_search(bits: int, items: float, queries: int) -> Search:
    import faiss

    faiss.omp_set_num_threads(available_threads())
    index, q = faiss.IndexBinaryFlat(bits), random_codes(queries, bits, 1)
    index.add(random_codes(items, bits, 2))
    return lambda: index.search(q, 10)


def our_search(bits: int, items: float, queries: int) -> Search:
    from proxyhash.codes import scan
    from proxyhash.codes.bitsliced.slicing import code_rows
    from proxyhash.codes.sources import slice_codes

    source, q = slice_codes(code_rows(random_codes(items, bits, 2))), random_codes(queries, bits, 1)
    return lambda: scan.nearest(source, q, 10)


def plain_search(bits: int, items: float, queries: int) -> Search:
    from proxyhash import codes
    from proxyhash.utils.jit import cold_start

    cold_start.end()
    db, q = random_codes(items, bits, 2), random_codes(queries, bits, 1)
    return lambda: codes.top_k(q, db, 10)


def row_search(bits: int, items: float, queries: int) -> Search:
    from proxyhash.codes import scan
    from proxyhash.codes.bitsliced.slicing import code_rows
    from proxyhash.codes.sources import RowCodes

    source, q = RowCodes(code_rows(random_codes(items, bits, 2)), bits), random_codes(queries, bits, 1)
    return lambda: scan.nearest(source, q, 10)


def memory_read(bits: int, items: float, queries: int) -> Search:  # noqa: ARG001
    """Read an array of the size of the codes on all threads, with vector instructions and nothing else."""
    from numba import njit

    from proxyhash.utils.parallel import leaf_map

    @njit(nogil=True)
    def total(words: NDArray[np.uint64]) -> np.uint64:
        out = np.uint64(0)
        for word in words:
            out += word
        return out

    parts = np.array_split(np.ones(round(items * bits / 64), np.uint64), available_threads())
    return lambda: list(leaf_map(total, parts, available_threads()))


SIDES = {"faiss": faiss_search, "ours": our_search, "plain": plain_search, "rows": row_search, "memory": memory_read}

_search: Search


def _prepare(side: str, bits: int, items: float, queries: int) -> None:
    global _search  # noqa: PLW0603 -- the state of a process that measures one side
    _search = SIDES[side](bits, items, queries)
    _search()


def _measure(repeats: int) -> float:
    """Return the least seconds of some searches."""
    best = np.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        _search()
        best = min(best, time.perf_counter() - begin)
    return float(best)


def alternate(sides: list[str], bits: int, items: float, queries: int) -> dict[str, float]:
    """Return the least seconds of each side, each alone in its process."""
    spawn = multiprocessing.get_context("spawn")
    pools = {side: spawn.Pool(1, _prepare, (side, bits, items, queries)) for side in sides}
    repeats = SINGLE_REPEATS if queries == 1 else REPEATS
    try:
        turns: list[dict[str, Any]] = [
            {side: pool.apply(_measure, (repeats,)) for side, pool in pools.items()} for _ in range(TURNS)
        ]
    finally:
        for pool in pools.values():
            pool.terminate()
    return {side: min(turn[side] for turn in turns) for side in sides}


def batch_rows() -> Iterator[Row]:
    rates: dict[int, float] = {}
    for bits, (millions, queries) in BATCH.items():
        items = 1e6 * millions
        wide = ["rows"] if bits >= 128 else []
        seconds = alternate(["faiss", "ours", "plain", *wide], bits, items, queries)
        rate = {side: items * queries / value / 1e9 for side, value in seconds.items()}
        rates[bits] = rate["ours"]
        target = HALF * BATCH_TARGETS[bits]
        note = ", ".join(f"{side} {value:.2f}" for side, value in rate.items()) + " G codes/s"
        for side in ("ours", "plain"):
            ratio = rate[side] / rate["faiss"]
            name = f"{bits} bits, {millions:g} M codes, {queries} queries, {side}: times faiss"
            yield Row(name, ratio, f">= {target:g}", ratio >= target, seconds[side], note=note)
        if wide:
            ratio = rate["rows"] / rate["ours"]
            yield Row(f"{bits} bits, word by word: times bit planes", ratio, "", True, seconds["rows"], note=note)
    for bits, least in ((16, 2.5), (32, 1.6)):
        ratio = rates[bits] / rates[64]
        yield Row(f"codes/s of {bits} bits over 64 bits", ratio, f">= {least}", ratio >= least, 0.0)
    for bits in (128, 256, 512, 1024):
        ratio = rates[bits] * bits / (rates[64] * 64)
        yield Row(f"bits/s of {bits} bits over 64 bits", ratio, ">= 0.6", ratio >= 0.6, 0.0)


def single_rows() -> Iterator[Row]:
    for bits, millions in SINGLE.items():
        items = 1e6 * millions
        seconds = alternate(["faiss", "ours", "plain", "memory"], bits, items, 1)
        rate = {side: items * bits / 8 / value / 1e9 for side, value in seconds.items()}
        note = ", ".join(f"{side} {value:.1f}" for side, value in rate.items()) + " GB/s"
        name = f"{bits} bits, {millions} M codes, one query"
        for side in ("ours", "plain"):
            ratio = seconds["faiss"] / seconds[side]
            yield Row(f"{name}, {side}: times faiss", ratio, f">= {HALF:g}", ratio >= HALF, seconds[side], note=note)
        share = seconds["memory"] / seconds["ours"]
        yield Row(f"{name}: share of the read bandwidth", share, ">= 0.8", share >= 0.8, seconds["ours"])


def main() -> None:
    sections = {"batch": batch_rows, "single": single_rows}
    run("Scans of codes against faiss and memory", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
