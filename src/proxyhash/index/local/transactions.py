"""What writers do to an index: every function is one transaction or a sequence of them, each whole or absent."""

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.clusters.centroids import GROWTH, SAMPLE, WORTH_IT, assign, choose_centres
from proxyhash.index.local import blocks, items
from proxyhash.index.local.blocks import Block, Numbers
from proxyhash.index.local.items import FileFacts, Labels
from proxyhash.index.local.snapshots import unpacked_centres
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import prefetch
from proxyhash.utils.random import generator

BATCH = 65_536  # codes in a transaction: what a kill loses at most, and what one write to the disk is worth
LAST_POSITION = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Batch:
    """Packed codes (n, bytes) of an edition with their keys, and what else is known of them."""

    edition: int
    codes: Packed
    keys: Sequence[str]
    labels: Labels | None = None
    source: int | None = None
    files: Sequence[FileFacts] | None = None
    groups: "Grouped | None" = None  # found before, while another batch was written

    def __len__(self) -> int:
        """Return n."""
        return len(self.codes)

    def part(self, rows: slice) -> "Batch":
        """Return some of them."""
        labels = None if self.labels is None else self.labels[rows]
        files = None if self.files is None else self.files[rows]
        return Batch(self.edition, self.codes[rows], self.keys[rows], labels, self.source, files)


@dataclass(frozen=True, eq=False)
class Grouped:
    """The groups (n,) of codes, and the centres that they were found by."""

    groups: Numbers
    centres: Packed | None


def add_batch(store: Store, batch: Batch) -> int:
    """Add a batch in one transaction, and return how many items it replaced: those that had the same keys."""
    with store.writing() as generation:
        edition, centres = live_centres(store)
        if edition != batch.edition:
            raise InputError("The index was moved to another model meanwhile; run it again.")
        first = store.fact("next")
        if first + len(batch) > LAST_POSITION:
            raise InputError(
                f"An index holds at most {LAST_POSITION:,} items, counting those that were replaced or removed."
            )
        positions = range(first, first + len(batch))
        replaced = 0
        try:
            store.run("SAVEPOINT items")
            items.insert(store, positions, batch.keys, batch.labels, batch.source, batch.files)
        except sqlite3.IntegrityError:  # rare, so that asking for every key beforehand would be a waste
            store.run("ROLLBACK TO items")
            old = np.sort(np.fromiter(items.positions_of(store, batch.keys).values(), np.uint32))
            items.delete(store, old)
            blocks.remove(store, edition, old, generation)
            items.insert(store, positions, batch.keys, batch.labels, batch.source, batch.files)
            replaced = len(old)
        numbers = np.arange(first, first + len(batch), dtype=np.uint32)
        known = batch.groups
        if known is None or not np.array_equal(known.centres, centres):  # type: ignore[arg-type]  # None equals None
            known = Grouped(assign(batch.codes, centres), centres)
        blocks.append(store, edition, Block(numbers, known.groups, batch.codes), generation)
        store.set_fact("next", first + len(batch))
    return replaced


def add_in_parts(store: Store, batch: Batch) -> int:
    """Add many codes, a transaction for each part; the next part is grouped while one is written."""
    parts = [batch.part(slice(first, first + BATCH)) for first in range(0, len(batch), BATCH)]
    if len(parts) == 1:
        return add_batch(store, parts[0])
    _, centres = live_centres(store)
    replaced = 0
    with ThreadPoolExecutor(1) as pool:
        grouped = ((part, pool.submit(assign, part.codes, centres)) for part in parts)
        for part, groups in prefetch(grouped, 1):
            replaced += add_batch(store, replace(part, groups=Grouped(groups.result(), centres)))
    return replaced


def remove_keys(store: Store, keys: Sequence[str]) -> int:
    """Remove items in one transaction: all of them, or none if one is unknown."""
    with store.writing() as generation:
        found = items.positions_of(store, keys)
        items.check_found(keys, found)
        positions = np.sort(np.fromiter(found.values(), np.uint32, len(found)))
        items.delete(store, positions)
        blocks.remove(store, store.fact("live"), positions, generation)
    return len(found)


def live_centres(store: Store) -> tuple[int, Packed | None]:
    """Return the edition that is searched, and its centres."""
    edition = store.fact("live")
    bits, centres = store.rows("SELECT bits, centres FROM editions WHERE number = ?", edition)[0]
    return edition, None if centres is None else unpacked_centres(centres, bits)


def regroup_if_grown(store: Store, coming: Packed, proxies: Callable[[], Packed | None]) -> None:
    """Choose centres before codes are added, if the index will be large, or much larger than when they were chosen."""
    edition = store.fact("live")
    chosen_at = store.value("SELECT grouped_at FROM editions WHERE number = ?", edition)
    count = store.value("SELECT coalesce(sum(count), 0) FROM blocks WHERE edition = ?", edition)
    if count + len(coming) >= max(WORTH_IT, GROWTH * chosen_at):
        regroup(store, coming, proxies())


def regroup(store: Store, coming: Packed, proxies: Packed | None) -> float:
    """Choose centres for what is there and what is coming, put every code into its group, return the share looked at."""
    with store.writing() as generation:
        edition = store.fact("live")
        places = blocks.places(store, edition)
        count = sum(place.items for place in places.values())
        sample = _sample(store, edition, coming, count)
        chosen = choose_centres(sample, count + len(coming), proxies)
        blob = None if chosen.codes is None else chosen.codes.tobytes()
        store.run("UPDATE editions SET centres = ?, grouped_at = ? WHERE number = ?", blob, count + len(coming), edition)
        for number in places:
            block = blocks.read_block(store, edition, number)
            blocks.write_block(store, edition, number, block.with_groups(assign(block.codes, chosen.codes)), generation)
    return chosen.share


def _sample(store: Store, edition: int, coming: Packed, count: int) -> Packed:
    """Return codes of both what is there and what is coming, in proportion, from all over."""
    random = generator(0, "sample")
    size = min(SAMPLE, count + len(coming))
    new = round(size * len(coming) / (count + len(coming)))
    parts = [coming[np.sort(random.choice(len(coming), new, replace=False))]] if new else []
    numbers = list(blocks.places(store, edition))
    chosen = [numbers[place] for place in np.unique(np.linspace(0, len(numbers) - 1, 32).astype(int))] if numbers else []
    for block in blocks.read_blocks(store, edition, chosen):
        rows = min(len(block), -(-(size - new) // len(chosen)))
        parts.append(block.codes[np.sort(random.choice(len(block), rows, replace=False))])
    return np.concatenate(parts)
