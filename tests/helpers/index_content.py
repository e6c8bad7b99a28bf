"""Content of an index, for comparisons."""

from proxyhash.index.local.blocks import list_blocks, read_blocks
from proxyhash.index.local.index import LocalIndex


def index_content(index: LocalIndex) -> dict[int, tuple[object, ...]]:
    """Return key, labels, source, size and time of every item, and its code, by item id."""
    store = index.store
    with store.reading():
        rows = {row[0]: row[1:] for row in store.rows("SELECT item_id, key, labels, source, size, mtime_ns FROM items")}
        version = store.active_version
        return {
            int(item_id): (*rows[int(item_id)], code.tobytes())
            for block in read_blocks(store, version, list(list_blocks(store, version)))
            for item_id, code in zip(block.item_ids, block.codes, strict=True)
        }
