"""Time to find near duplicates among a million items.

python benchmarks/duplicates.py                           everything, a few minutes on two cores
python benchmarks/duplicates.py --only clustered,since    some of: clustered, uniform, refined, since, index
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np

from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.duplicates import find_duplicates
from proxyhash.index.duplicates.compared import ComparedItems, Refinement
from proxyhash.index.duplicates.groups import KnownGroups, Thresholds, find_groups
from proxyhash.index.duplicates.state import id_ranges
from proxyhash.index.local.index import LocalIndex
from reporting import Row, options_of, run, timed

ITEMS = 1_000_000
RADIUS = 3
LIMIT = 60.0  # seconds


def clustered_codes(count: int, centers: int, bits: int, seed: int, flips: float = 0.1) -> Packed:
    """Return codes around random centers, a bit in ten flipped, as those of a trained network."""
    random = np.random.default_rng(seed)
    out = np.random.default_rng(7).integers(0, 256, (centers, bits // 8), dtype=np.uint8)[random.integers(0, centers, count)]
    for first in range(0, count, 262_144):
        part = out[first : first + 262_144]
        part ^= np.packbits(random.random((len(part), bits), dtype=np.float32) < flips, axis=1)
    return out


def uniform_codes(count: int, bits: int, seed: int) -> Packed:
    return np.random.default_rng(seed).integers(0, 256, (count, bits // 8), dtype=np.uint8)


def items_of(codes: Packed) -> ComparedItems:
    return ComparedItems(np.arange(len(codes)), to_words(codes))


def compile_kernels() -> None:
    codes = uniform_codes(1000, 64, 0)
    refined = replace(items_of(codes), refinement=Refinement(to_words(codes), None, ""))
    find_groups(refined, Thresholds(RADIUS, 2.0))


def best_groups(items: ComparedItems, thresholds: Thresholds, known: KnownGroups | None = None) -> tuple[str, float]:
    """Return a note on the groups and the best time of three."""
    results = [timed(find_groups, items, thresholds, known) for _ in range(3)]
    groups, _ = results[0][0]
    return f"{len(groups):,} groups of {len(groups.item_ids):,} items", min(seconds for _, seconds in results)


def limited(name: str, note: str, seconds: float) -> Row:
    return Row(f"{name}: s", seconds, "< 60", seconds < LIMIT, seconds, LIMIT, note)


def clustered_rows() -> Iterator[Row]:
    compile_kernels()
    for centers in (10, 100, 1000):
        codes = clustered_codes(ITEMS, centers, 64, 1)
        note, seconds = best_groups(items_of(codes), Thresholds(RADIUS))
        yield limited(f"1,000,000 codes around {centers:,} centers, 3 bits", note, seconds)
    for radius in (6, 10):
        note, seconds = best_groups(items_of(codes), Thresholds(radius))
        yield Row(f"... around 1,000 centers, {radius} bits: s", seconds, "", True, seconds, note=note)
    flat = faiss.IndexBinaryFlat(64)
    flat.add(codes)
    theirs = timed(flat.range_search, codes[:5000], RADIUS + 1)[1] * ITEMS / 5000
    yield Row("... range search of faiss: s", theirs, "", True, theirs, note="measured on 5,000 queries")


def uniform_rows() -> Iterator[Row]:
    compile_kernels()
    for bits in (64, 256):
        note, seconds = best_groups(items_of(uniform_codes(ITEMS, bits, 1)), Thresholds(RADIUS))
        yield limited(f"1,000,000 uniform codes of {bits} bits, 3 bits", note, seconds)


def refined_rows() -> Iterator[Row]:
    """Measure class codes, of which thousands are equal, with a refinement that tells them apart."""
    compile_kernels()
    codes = clustered_codes(ITEMS, 100, 64, 1, flips=0.01)
    fine = to_words(clustered_codes(ITEMS, 200_000, 128, 2, flips=0.01))
    items = replace(items_of(codes), refinement=Refinement(fine, None, ""))
    note, seconds = best_groups(items, Thresholds(RADIUS, 2.0))
    yield limited("1,000,000 class codes, refinement of 128 bits within 2", note, seconds)
    note, seconds = best_groups(items_of(codes), Thresholds(RADIUS))
    yield Row("... without the refinement: s", seconds, "", True, seconds, note=note)


def since_rows() -> Iterator[Row]:
    compile_kernels()
    items = items_of(clustered_codes(ITEMS, 1000, 64, 1))
    old = items.take(np.arange(ITEMS - 1000))
    groups, _ = find_groups(old, Thresholds(RADIUS))
    note, seconds = best_groups(items, Thresholds(RADIUS), KnownGroups(id_ranges(old.item_ids), groups))
    yield Row("1,000 items more than in a state of 999,000: s", seconds, "", True, seconds, note=note)


def index_rows() -> Iterator[Row]:
    """Measure everything that the command does: reading the index, comparing, looking up items, writing the state."""
    compile_kernels()
    with tempfile.TemporaryDirectory() as folder, LocalIndex.open_folder(Path(folder) / "index", bits=64) as index:
        index.add(clustered_codes(ITEMS, 1000, 64, 1), [f"photos/{number:09d}.jpg" for number in range(ITEMS)])
        index.snapshots.latest()
        state = Path(folder) / "state.json"
        for name in ("first search", "second search"):
            report, seconds = timed(find_duplicates, index, RADIUS, since=state)
            note = f"{len(report):,} groups, {report.num_new:,} items compared, state of {state.stat().st_size / 1e6:.0f} MB"
            yield limited(f"index of 1,000,000 items, {name}", note, seconds)


def main() -> None:
    sections = {
        "clustered": clustered_rows,
        "uniform": uniform_rows,
        "refined": refined_rows,
        "since": since_rows,
        "index": index_rows,
    }
    run("Near duplicates", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
