"""Item arrays in the order of the slots of segments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.codes import clustered_codes, make_keys
from helpers.index_content import array_content
from proxyhash import InputError
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.clustered import ClusteredSegment
from proxyhash.index.local import array_blocks, blocks, item_arrays, snapshots, transactions
from proxyhash.index.local.aligned_arrays import AlignedArrays
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.transactions import ItemBatch, add_batch
from proxyhash.index.maintenance import compact, verify
from proxyhash.utils import available_memory
from proxyhash.utils.jit import cold_start

PRICE = "array:price"


@pytest.fixture(params=["flat", "clustered"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalIndex]:
    least = 200 if request.param == "clustered" else 10**9
    with (
        patch.object(cold_start, "seconds", 0.0),  # clusters are searched at once
        patch.object(transactions, "MIN_CODES_FOR_CLUSTERS", least),
        patch.object(blocks, "CODES_PER_BLOCK", 100),
        patch.object(array_blocks, "ROWS_PER_BLOCK", 70),
        patch.object(snapshots, "MAX_DELTA", 150),
        LocalIndex.open_folder(tmp_path / "i", bits=64) as opened,
    ):
        yield opened


def add(index: LocalIndex, count: int, first: int, arrays: dict[str, NDArray[Any]]) -> None:
    codes = clustered_codes(count, 8, first)
    transactions.recluster_if_grown(index.store, codes, index.proxy_codes)
    add_batch(index.store, ItemBatch(index.store.codes_id, codes, make_keys(count, first), arrays=arrays))


def prices(count: int, first: int) -> NDArray[np.int64]:
    return 10 * np.arange(first, first + count, dtype=np.int64)[:, None]


def as_dict(index: LocalIndex, aligned: AlignedArrays, name: str) -> dict[int, Any]:
    """Return the rows of an array by item id, from all segments of the latest snapshot."""
    snapshot = index.snapshots.latest()
    found: dict[int, Any] = {}
    for segment in snapshot.segments:
        array = aligned.get(snapshot, segment, name)
        ids = segment.slot_ids()
        assert array.values.shape[0] == array.known.shape[0] == len(ids)
        assert not array.known[ids < 0].any()
        found |= {int(ids[slot]): array.values[slot] for slot in np.flatnonzero(array.known)}
    return found


def assert_aligned(index: LocalIndex, aligned: AlignedArrays, *names: str) -> None:
    content = array_content(index)
    for name in names:
        found, expected = as_dict(index, aligned, name), content.get(name, {})
        assert found.keys() == expected.keys()
        assert all((found[item_id] == expected[item_id]).all() for item_id in found)


def test_rows_follow_adds_removals_replacements_and_compaction(index: LocalIndex, request: pytest.FixtureRequest) -> None:
    aligned = index.aligned_arrays
    for turn in range(5):
        first = 80 * turn
        vectors = np.random.default_rng(turn).normal(size=(100, 3)).astype(np.float32)
        add(index, 100, first, {PRICE: prices(100, first)} | ({"vectors": vectors} if turn % 2 else {}))
        assert_aligned(index, aligned, PRICE, "vectors", "absent")
        index.remove(make_keys(7, first + 11))
        assert_aligned(index, aligned, PRICE, "vectors", "absent")
    compact(index)
    assert_aligned(index, aligned, PRICE, "vectors")
    is_clustered = isinstance(index.snapshots.latest().main, ClusteredSegment)
    assert is_clustered == ("clustered" in request.node.name)


def test_second_call_reads_nothing(index: LocalIndex) -> None:
    add(index, 300, 0, {PRICE: prices(300, 0)})
    snapshot = index.snapshots.latest()
    first = index.aligned_arrays.get(snapshot, snapshot.main, PRICE)
    with patch.object(item_arrays, "_read_block", side_effect=AssertionError):
        assert index.aligned_arrays.get(snapshot, snapshot.main, PRICE) is first
    with pytest.raises(ValueError, match="read-only"):
        first.values[0] = 1


def test_only_changed_blocks_are_read_after_an_add(index: LocalIndex) -> None:
    add(index, 600, 0, {PRICE: prices(600, 0)})
    aligned, read = index.aligned_arrays, []
    assert_aligned(index, aligned, PRICE)
    real = item_arrays._read_block

    def counting(store: Any, name: str, generation: int, number: int) -> Any:
        read.append(number)
        return real(store, name, generation, number)

    for turn in range(3):
        add(index, 20, 1000 + 20 * turn, {PRICE: prices(20, 1000 + 20 * turn)})
        read.clear()
        with patch.object(item_arrays, "_read_block", counting):
            as_dict(index, aligned, PRICE)
        assert len(read) <= 4  # of ten: the last, and those with rows of the codes in the last block of codes
    assert_aligned(index, aligned, PRICE)


def test_rows_that_are_appended_later_become_known(index: LocalIndex) -> None:
    add(index, 300, 0, {})
    aligned = index.aligned_arrays
    assert as_dict(index, aligned, "refinement") == {}
    ids = np.arange(300, dtype=np.uint32)
    for part in (slice(0, 130), slice(130, 300)):
        with index.store.writing():
            item_arrays.append_rows(index.store, "refinement", ids[part], np.full((len(ids[part]), 2), 7, np.int8))
        assert_aligned(index, aligned, "refinement")
    assert len(as_dict(index, aligned, "refinement")) == 300


def test_array_that_was_deleted_and_created_again_is_read_again(index: LocalIndex) -> None:
    add(index, 300, 0, {PRICE: prices(300, 0)})
    assert_aligned(index, index.aligned_arrays, PRICE)
    with index.store.writing():
        item_arrays.delete_array(index.store, PRICE)
        item_arrays.append_rows(index.store, PRICE, np.arange(300, dtype=np.uint32), -prices(300, 0))
    assert_aligned(index, index.aligned_arrays, PRICE)
    assert as_dict(index, index.aligned_arrays, PRICE)[5] == -50
    with index.store.writing():
        item_arrays.delete_array(index.store, PRICE)
    assert as_dict(index, index.aligned_arrays, PRICE) == {}
    assert verify(index).problems == ()


def test_masked_rows_are_not_stored(index: LocalIndex) -> None:
    rows = np.ma.masked_less(prices(300, 0), 1000)
    add(index, 300, 0, {PRICE: rows})
    found = as_dict(index, index.aligned_arrays, PRICE)
    assert {item_id: int(row[0]) for item_id, row in found.items()} == {row: 10 * row for row in range(100, 300)}
    add(index, 50, 1000, {PRICE: prices(50, 1000)})
    assert_aligned(index, index.aligned_arrays, PRICE)


def test_rows_of_selected_codes_are_found(index: LocalIndex) -> None:
    add(index, 400, 0, {PRICE: prices(400, 0)})
    snapshot = index.snapshots.latest()
    mask = np.arange(400) % 3 == 0
    chosen = snapshot.main.select(SlotMask.of(np.append(mask, False)[snapshot.main.slot_ids()]))
    array = index.aligned_arrays.get(snapshot, chosen, PRICE)
    ids = chosen.slot_ids()
    np.testing.assert_array_equal(array.values[array.known, 0], 10 * ids[array.known])
    assert array.known.sum() == mask.sum()


def test_segments_out_of_use_are_freed(index: LocalIndex) -> None:
    aligned = index.aligned_arrays
    for turn in range(6):
        add(index, 60, 60 * turn, {PRICE: prices(60, 60 * turn)})
        as_dict(index, aligned, PRICE)
    assert len(aligned._entries[PRICE]) <= 3


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_sequence_of_writes_leaves_arrays_aligned(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    steps = data.draw(st.lists(st.sampled_from(["add", "remove", "compact", "look", "other"]), min_size=3, max_size=12))
    with (
        patch.object(array_blocks, "ROWS_PER_BLOCK", 5),
        patch.object(snapshots, "MAX_DELTA", 20),
        patch.object(blocks, "CODES_PER_BLOCK", 8),
        LocalIndex.open_folder(tmp_path_factory.mktemp("i") / "i", bits=64) as index,
    ):
        for turn, step in enumerate(steps):
            keys = [item.key for item in index.list_items(limit=1000)]
            if step in ("add", "other"):
                count = data.draw(st.integers(1, 15))
                add(
                    index,
                    count,
                    3 * turn,
                    {PRICE: prices(count, 3 * turn)} if step == "add" else {"other": np.ones((count, 1))},
                )
            elif step == "remove" and keys:
                index.remove(data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True)))
            elif step == "compact":
                compact(index)
            else:
                assert_aligned(index, index.aligned_arrays, PRICE, "other")
        assert_aligned(index, index.aligned_arrays, PRICE, "other")
        assert verify(index).problems == ()


def test_rows_that_do_not_fit_in_memory_are_refused(index: LocalIndex) -> None:
    add(index, 300, 0, {PRICE: prices(300, 0)})
    snapshot = index.snapshots.latest()
    limit = patch.object(available_memory, "available_memory", return_value=1000)
    with limit, pytest.raises(InputError, match="rows of an array need"):
        index.aligned_arrays.get(snapshot, snapshot.main, PRICE)
    assert_aligned(index, index.aligned_arrays, PRICE)
