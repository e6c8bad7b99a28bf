"""All items and codes of a store, read in batches for an export."""

from collections.abc import Iterator

from proxyhash.index.exchange.content import CodeBatch, CodeContent, make_batch
from proxyhash.index.local.blocks import list_blocks, read_blocks
from proxyhash.index.local.columns import column_types, find_items, fraction_columns
from proxyhash.index.local.items import count_items
from proxyhash.index.local.store import Store


def stored_content(store: Store) -> CodeContent:
    """Return the active version of a store, inside a transaction that reads it."""
    version = store.active_version
    info, blocks, types = store.version_info(version), list_blocks(store, version), column_types(store)
    if count_items(store) != info.num_codes:
        store.raise_damaged(f"it has {count_items(store):,} items and {info.num_codes:,} codes")

    def read() -> Iterator[CodeBatch]:
        for block in read_blocks(store, version, list(blocks)):
            found = find_items(store, block.item_ids.tolist())
            if len(found) != len(block):
                store.raise_damaged(f"{len(block) - len(found):,} codes have no item")
            yield make_batch([found[item_id] for item_id in block.item_ids.tolist()], block.codes, types)

    return CodeContent(
        info.bits,
        info.num_codes,
        read,
        info.model,
        store.centroids(version),
        columns=types,
        fractions=fraction_columns(store),
    )
