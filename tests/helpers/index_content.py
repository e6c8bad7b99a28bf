"""Content of an index, for comparisons."""

from typing import Any

from numpy.typing import NDArray

from proxyhash.index.local.blocks import list_blocks, read_blocks
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.item_arrays import list_array_blocks, list_arrays, read_array_blocks


def index_content(index: LocalIndex) -> dict[int, tuple[object, ...]]:
    """Return key, labels, source, size, time and row of every item, and its code, by item id."""
    store = index.store
    with store.reading():
        rows = {
            row[0]: row[1:] for row in store.rows("SELECT item_id, key, labels, source, size, mtime_ns, file_row FROM items")
        }
        version = store.active_version
        return {
            int(item_id): (*rows[int(item_id)], code.tobytes())
            for block in read_blocks(store, version, list(list_blocks(store, version)))
            for item_id, code in zip(block.item_ids, block.codes, strict=True)
        }


def kept_content(index: LocalIndex) -> dict[int, NDArray[Any]]:
    """Return the kept vector (width,) of every item that has one, by item id."""
    return array_content(index).get("vectors", {})


def array_content(index: LocalIndex) -> dict[str, dict[int, NDArray[Any]]]:
    """Return the rows (width,) of every array by its name and by item id."""
    store = index.store
    with store.reading():
        return {
            name: {
                int(item_id): row
                for block in read_array_blocks(store, name, list_array_blocks(store, name))
                for item_id, row in zip(block.item_ids, block.rows, strict=True)
            }
            for name in list_arrays(store)
        }
