"""Cache of items that were found before."""

from pathlib import Path

import numpy as np
import pytest

from proxyhash.index.local import items
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.store import Store

CODES = np.arange(20, dtype=np.uint8)[:, None]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the sets of item ids that were read from the file."""
    asked: list[set[int]] = []
    real = items.items_by_id

    def noting(store: Store, item_ids: set[int]) -> dict[int, items.Item]:
        asked.append(set(item_ids))
        return real(store, item_ids)

    monkeypatch.setattr(items, "items_by_id", noting)
    return asked


def filled(folder: Path) -> Path:
    with LocalIndex.open_folder(folder, bits=8) as index:
        index.add(CODES, [f"item {number}" for number in range(20)], [f"label {number % 3}" for number in range(20)])
    return folder


def test_cached_items_give_the_same_matches(tmp_path: Path, reads: list[set[int]]) -> None:
    folder = filled(tmp_path / "i")
    with LocalIndex.open_folder(folder) as flat, LocalIndex.open_folder(folder, item_cache_size=10) as index:
        for first in (0, 0, 3, 1, 17, 0):
            assert index.search(CODES[first : first + 2], 3) == flat.search(CODES[first : first + 2], 3)
        reads.clear()
        index.search(CODES[:2], 3)
        assert reads == []
        flat.search(CODES[:2], 3)
        assert len(reads) == 1


def test_change_of_the_index_empties_the_cache(tmp_path: Path, reads: list[set[int]]) -> None:
    folder = filled(tmp_path / "i")
    with LocalIndex.open_folder(folder, item_cache_size=10) as index, LocalIndex.open_folder(folder) as writer:
        assert index.search(CODES[:1], 1)[0][0].labels == ("label 0",)
        writer.add(CODES[:1], ["item 0"], ["another"])
        assert index.search(CODES[:1], 1)[0][0].labels == ("another",)
        writer.remove(["item 0"])
        assert index.search(CODES[:1], 1)[0][0].key == "item 1"
        assert len(reads) == 3


def test_cache_stays_below_its_maximum_size(tmp_path: Path) -> None:
    with LocalIndex.open_folder(filled(tmp_path / "i"), item_cache_size=10) as index:
        for first in range(18):
            index.search(CODES[first : first + 2], 2)
            assert len(index.item_cache) <= 10
        assert len(index.search(CODES, 20)[0]) == 20  # more than the cache holds
        assert len(index.item_cache) <= 10
