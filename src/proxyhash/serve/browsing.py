"""Items of an index and facts about it, as the service tells them."""

import random

from proxyhash import __version__
from proxyhash.codes.bits import Packed
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import Item, ids_by_key, items_by_id
from proxyhash.serve.encoding import can_encode
from proxyhash.serve.http import RefusalError
from proxyhash.serve.messages import InfoAnswer, ItemAnswer

_TRIES = 20  # positions for each item that is wanted by chance


class Facts:
    """What the service offers. To count a million items takes a while, so it is done again only when they change."""

    def __init__(self, index: LocalIndex, body_bytes: int, *, writable: bool) -> None:
        self._index, self._body_bytes, self._writable = index, body_bytes, writable
        self._known: tuple[tuple[int, bool], InfoAnswer] | None = None

    def now(self) -> InfoAnswer:
        """Return them."""
        state = self._index.store.generation, self._index.calibration is not None
        if self._known is None or self._known[0] != state:
            self._known = state, self._asked()
        return self._known[1]

    def _asked(self) -> InfoAnswer:
        info = self._index.info()
        return InfoAnswer(
            info.items,
            info.bits,
            info.model,
            info.plan,
            info.calibrated,
            can_encode(self._index),
            self._writable,
            self._body_bytes,
            __version__,
        )


def item_of(index: LocalIndex, key: str) -> Item:
    """Return an item, or refuse a key that is unknown."""
    with index.store.reading():
        position = ids_by_key(index.store, [key]).get(key)
        if position is None:
            raise RefusalError(404, f"The index has no item {key}.")
        return items_by_id(index.store, [position])[position]


def code_of(index: LocalIndex, key: str) -> Packed:
    """Return the packed code (bytes,) of an item, or refuse a key that is unknown."""
    with index.store.reading():
        item_of(index, key)
        code: Packed = index.code(key)[0]
        return code


def by_chance(index: LocalIndex, count: int) -> list[Item]:
    """Return `count` items, any; fewer only if there are fewer, or nearly all positions are of items that are gone."""
    following = "SELECT item_id FROM items WHERE item_id >= ? ORDER BY item_id LIMIT 1"
    positions: set[int] = set()
    with index.store.reading():
        end = index.store.meta().next_id
        for start in random.sample(range(end), min(_TRIES * count, end)):
            positions |= {int(position) for (position,) in index.store.rows(following, start)}
            if len(positions) == count:
                break
        found = list(items_by_id(index.store, positions).values())
    random.shuffle(found)
    return found


def listed(item: Item) -> ItemAnswer:
    """Return what clients see of an item."""
    return ItemAnswer(item.key, item.labels, item.path is not None)
