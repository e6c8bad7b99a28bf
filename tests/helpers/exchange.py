"""Indexes with difficult keys and labels, and processes that export them."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from helpers.codes import clustered_codes
from proxyhash import Index
from proxyhash.codes.bits import Packed

KEYS = ("a\nb", "tab\t", "Käse/π.jpg", "\u2028", '"quoted"', "{}", "🙂", "nul\0l", " ")
LABELS = ((), ("cat",), ("cat", "tame"), ("dog", "line\nbreak", "Ä"))
COUNT = 700


def codes_of(count: int, bits: int, seed: int) -> Packed:
    """Return clustered codes of any length, with unused bits that are 0."""
    width = (bits + 7) // 8
    last = np.array([0xFF] * (width - 1) + [0xFF >> (-bits % 8)], np.uint8)
    return clustered_codes(count, width, seed) & last


def make_index(folder: Path, bits: int = 64, count: int = COUNT) -> Index:
    """Return an index whose items have several labels, with gaps in its item ids."""
    index = Index.open(folder, bits=bits)
    keys = [*KEYS, *(f"item/{number}" for number in range(count - len(KEYS)))][:count]
    if count:
        index.add(codes_of(count, bits, 0), keys, [LABELS[number % len(LABELS)] for number in range(count)])
        index.add(codes_of(count // 10, bits, 1), keys[-(count // 10) :])  # other codes, without labels
        index.remove(keys[20:30])
    return index


def all_items(index: Index) -> list[tuple[str, tuple[str, ...], bytes]]:
    """Return key, labels and code of every item, in the order in which they were added."""
    items = sorted(index.list_items(limit=10_000), key=lambda item: item.item_id)
    return [(item.key, item.labels, index.code(item.key).tobytes()) for item in items]


def export_until_killed(folder: str, path: str) -> None:
    """Export an index, and kill this process when half of it was read."""

    def progress(_: str, fraction: float) -> None:
        if fraction >= 0.5:
            os.kill(os.getpid(), signal.SIGKILL)

    with Index.open(folder) as index:
        index.export_file(path, progress=progress)


def replace_all(folder: str, count: int) -> None:
    """Replace all items again and again: each commit has one code for all of them."""
    with Index.open(folder) as index:
        for number in range(10_000):
            index.add(np.full((count, 8), number % 256, np.uint8), [str(key) for key in range(count)])


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export_until_killed(*sys.argv[2:])
    else:
        replace_all(sys.argv[2], int(sys.argv[3]))
