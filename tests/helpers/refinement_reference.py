"""Expected order of refined searches, computed item by item from the rows of an index."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.index.local import item_arrays
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.refinement.refiner import Refiner, Rows
from proxyhash.index.refinement.storage import rows_name

MAX_QUERIES = 3


def check_refined_order(index: LocalIndex, state: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Check rows and searches of an index of vectors; return the keys that have a row.

    `state` has the vectors of all items by their keys, and in `items` lists whose first element is the code as text.
    """
    refinement = index.refinement
    refiner = None if refinement is None else refinement.refiner
    with index.store.reading():
        keys = {item.item_id: item.key for item in index.list_items(limit=10_000)}
        item_ids, rows = item_arrays.read_array(index.store, rows_name(index.store.active_version))
    vectors = {item_id: state["vectors"][key] for item_id, key in keys.items()}
    if refiner is None:
        assert not len(item_ids), "rows without a refiner"
    elif len(item_ids):
        given = np.array([vectors[item_id] for item_id in item_ids.tolist()], np.float32)
        features = index.encoder.rows(given)[:]  # type: ignore[attr-defined]  # the model takes vectors
        _check_rows(refiner, features, rows)
    by_id = dict(zip(item_ids.tolist(), rows, strict=True))
    codes = {item_id: np.frombuffer(bytes.fromhex(state["items"][key][0]), np.uint8) for item_id, key in keys.items()}
    _check_order(index, codes, vectors, refiner, by_id)
    return {keys[item_id] for item_id in by_id}


def _check_rows(refiner: Refiner, features: NDArray[np.float32], rows: Rows) -> None:
    """Check that rows are encoded features; those that waited for a fit were stored as float16."""
    exact, rounded = (refiner.encode(each) for each in (features, features.astype(np.float16).astype(np.float32)))
    assert ((rows == exact).all(1) | (rows == rounded).all(1)).all(), "a row of another refiner"


def _check_order(
    index: LocalIndex,
    codes: Mapping[int, Packed],
    vectors: Mapping[int, Sequence[float]],
    refiner: Refiner | None,
    rows: Mapping[int, Rows],
) -> None:
    """Compare searches with all items in the order of distance, refinement distance and id; those without a row are last."""
    chosen = sorted(codes)[:MAX_QUERIES]
    if not chosen:
        return
    queries = np.array([vectors[item_id] for item_id in chosen], np.float32)
    features = index.encoder.rows(queries)[:]  # type: ignore[attr-defined]  # the model takes vectors
    mine = [None] * len(queries) if refiner is None else list(refiner.encode(features))
    for own, row, matches in zip(chosen, mine, index.search(queries, 10_000), strict=True):
        found = [(match.distance, match.refinement, match.item_id) for match in matches]
        expected = [
            (
                int(np.bitwise_count(codes[own] ^ code).sum()),
                None if row is None else _distance(row, rows.get(item_id)),
                item_id,
            )
            for item_id, code in codes.items()
        ]
        expected.sort(key=lambda one: (one[0], np.inf if one[1] is None else one[1], one[2]))
        assert found == expected, "another order than that of the rows"


def _distance(query: Rows | None, row: Rows | None) -> int | None:
    if query is None or row is None:
        return None
    if row.dtype == np.int8:
        return int(128 * np.sqrt(np.square(query.astype(np.float64) - row).sum()))
    return int(np.bitwise_count(query ^ row).sum())
