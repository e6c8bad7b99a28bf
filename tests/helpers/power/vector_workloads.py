"""Workloads over indexes of vectors with columns and a refinement, and what must be left of them after a loss of power.

python -m helpers.power.vector_workloads NAME ROOT MODEL OTHER_MODEL
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from helpers.codes import make_keys
from helpers.index_content import kept_content
from helpers.power.index_workloads import Steps, check_backup, check_index, contents
from helpers.power.recording import Mark, acknowledge
from helpers.refinement_reference import check_refined_order
from proxyhash.columns import parse_date, to_json_value
from proxyhash.data import SkippedItems
from proxyhash.index.backup import backup
from proxyhash.index.local import array_blocks, item_arrays
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.refinement import backfill, storage
from proxyhash.index.refinement.backfill import refine_index
from proxyhash.index.refinement.refiner import Kind
from proxyhash.index.refinement.storage import features_name, rows_name
from proxyhash.models.hasher import Hasher

WIDTH = 12
DAYS = ("2024-01-31", "2024-02-29T12:30:00Z", "1969-12-31", None)
FILTERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "price": ("price >= 14", lambda value: value >= 14),
    "place": ("place in ('place 1', 'place 20')", lambda value: value in ("place 1", "place 20")),
    "day": ("day < '2024-01-01'", lambda value: value < "2024-01-01"),
    "size": ("size == 0.5", lambda value: value == 0.5),
}
"""A filter of each column, and what it keeps of the values as JSON has them."""


class VectorSteps(Steps):
    """An index of vectors that are kept, and the steps of a workload."""

    def __init__(self, folder: Path, model: str, kind: Kind | None = None) -> None:
        super().__init__(folder, model=Path(model), refine=kind)
        self.vectors: dict[str, list[float]] = {}
        self.columns: dict[str, dict[str, Any]] = {}
        self.kind = kind
        self.set_model(model)
        self.done()

    def set_model(self, model: str) -> None:
        """Note the codes that a model gives to all items."""
        self.model, self.encoder = model, Hasher.load(model)
        if self.vectors:  # no model encodes an empty matrix
            vectors: Any = np.array(list(self.vectors.values()), np.float32)
            codes = self.encoder.encode(vectors)
            self.items = {key: [code.tobytes().hex(), []] for key, code in zip(self.vectors, codes, strict=True)}

    def done(self) -> None:
        """Acknowledge the state; `model` and `kind` are those of its codes and its refinement."""
        acknowledge(**self.state(), model=self.model)

    def state(self) -> Mark:
        """Return what the index holds."""
        return {"items": self.items, "vectors": self.vectors, "columns": self.columns, "kind": self.kind}

    def add_vectors(self, count: int, first: int, columns: Mapping[str, Sequence[Any]] | None = None) -> None:
        """Add vectors, which depend on how many there are, with columns."""
        vectors = np.random.default_rng(len(self.vectors)).normal(size=(count, WIDTH)).astype(np.float32)
        keys = make_keys(count, first)
        self.index.add(vectors, keys, columns=columns, keep_vectors=True)
        self.vectors |= dict(zip(keys, vectors.tolist(), strict=True))
        for row, key in enumerate(keys):
            values = {name: to_json_value(column[row]) for name, column in (columns or {}).items()}
            self.columns[key] = {name: value for name, value in values.items() if value is not None}
        self.set_model(self.model)
        self.done()

    def remove(self, count: int, first: int) -> None:
        for key in make_keys(count, first):
            del self.vectors[key], self.columns[key]
        super().remove(count, first)

    def upgrade(self, model: str) -> None:
        from proxyhash.index.upgrade import upgrade

        upgrade(self.index, Hasher.load(model), SkippedItems())
        self.set_model(model)
        self.done()

    def refine(self, kind: Kind | None) -> None:
        refine_index(self.index, kind, SkippedItems())
        self.kind = kind
        self.done()

    def back_up(self) -> None:
        backup(self.index, self.folder.with_name("backup"))
        acknowledge(**self.state(), model=self.model, backup=self.state())


def columns(root: Path, model: str, other_model: str) -> None:
    """Add items with columns of every type, replace some by items with other columns, upgrade, compact, and back up."""
    array_blocks.ROWS_PER_BLOCK = 8
    steps = VectorSteps(root / "i", model)
    places = [None if row % 5 == 4 else f"place {row % 3}" for row in range(12)]
    steps.add_vectors(12, 0, {"price": list(range(12)), "place": places, "day": _days(12)})
    steps.add_vectors(12, 6, {"price": [10.5 + row for row in range(12)], "size": [0.5] * 6 + [None] * 6})  # replaces 6
    steps.remove(7, 1)
    steps.back_up()
    steps.upgrade(other_model)
    steps.compact()
    steps.add_vectors(4, 16, {"place": ["place 20", "place 1"] * 2, "day": _days(4)})  # two are replaced
    steps.back_up()
    steps.index.close()


def _days(count: int) -> list[datetime | None]:
    days = [DAYS[row % len(DAYS)] for row in range(count)]
    return [None if day is None else parse_date(day, "day") for day in days]


def refined(root: Path, model: str, other_model: str) -> None:
    """Add items to an index with a refinement, which is fitted again as it grows; replace, remove, upgrade, and back up."""
    array_blocks.ROWS_PER_BLOCK, storage.MIN_FITTED = 8, 24
    steps = VectorSteps(root / "i", model, "code")
    steps.add_vectors(6, 0)
    steps.add_vectors(7, 4)  # fitted again; two are replaced
    steps.back_up()
    steps.add_vectors(15, 20)  # fitted for good
    steps.add_vectors(3, 19)  # two are replaced
    steps.remove(9, 2)
    steps.upgrade(other_model)
    steps.compact()
    steps.index.close()


def backfilled(root: Path, model: str, _: str) -> None:
    """Add a refinement to an index that has none, in several transactions; change its kind, and remove it."""
    array_blocks.ROWS_PER_BLOCK, backfill.CODES_PER_BLOCK = 8, 6  # type: ignore[attr-defined]
    steps = VectorSteps(root / "i", model)
    steps.add_vectors(16, 0, {"price": list(range(16))})
    steps.refine("code")
    steps.add_vectors(6, 12)  # four are replaced
    storage.MIN_FITTED = 6
    steps.refine("int8")
    steps.remove(4, 3)
    steps.refine(None)
    steps.index.close()


def read_state(index: LocalIndex) -> Mark:
    """Return codes, kept vectors and columns of all items by their keys."""
    with index.store.reading():
        found = {item.item_id: item for item in index.list_items(limit=1000)}
        vectors = {found[item_id].key: vector.tolist() for item_id, vector in kept_content(index).items()}
    columns = {item.key: {name: to_json_value(value) for name, value in item.columns.items()} for item in found.values()}
    return {"items": contents(index), "vectors": vectors, "columns": columns}


def check_vectors(folder: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that an index is as it was acknowledged, or as the next step leaves it, and that its refinement can go on."""
    states = [mark for mark in (*before[-1:], following) if mark is not None]
    if not before:  # not even its creation was acknowledged: it can be repeated
        with LocalIndex.open_folder(folder / "i", model=states[0]["model"], refine=states[0]["kind"]) as index:
            assert len(index) == 0
        return
    with LocalIndex.open_folder(folder / "i") as index:
        found = read_state(index)
        matching = [state for state in states if all(found[name] == state[name] for name in found)]
        assert matching, {name: [found[name] == state[name] for state in states] for name in found}
        check_filters(index, found["columns"])
        check_refinement(index, found, before[-1], following)
        kind = None if index.refinement is None else index.refinement.kind
        if kind is not None:  # what was stopped goes on
            refine_index(index, kind, SkippedItems())
            assert check_refined_order(index, found) == found["items"].keys()
    check_index(folder, before, following)


def check_filters(index: LocalIndex, columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that a filter keeps the items that have such values."""
    assert {name for row in columns.values() for name in row} <= index.columns.keys()
    names = sorted(index.columns.keys() & FILTERS.keys())
    if names:
        query, where = np.zeros((1, (index.bits + 7) // 8), np.uint8), " or ".join(FILTERS[name][0] for name in names)
        wanted = {key for key, row in columns.items() if any(name in row and FILTERS[name][1](row[name]) for name in names)}
        assert set(index.search(query, 1000, where=where)[0].keys) == wanted, where


def check_refinement(index: LocalIndex, found: Mark, last: Mark, following: Mark | None) -> None:
    """Check that rows are those of one refiner, and that no item lost its row unless the kind is being changed."""
    kind = None if index.refinement is None else index.refinement.kind
    assert kind in {mark["kind"] for mark in (last, following) if mark is not None}
    with_row = check_refined_order(index, found)
    if kind is not None and kind == last["kind"]:
        assert last["items"].keys() & found["items"].keys() <= with_row
        version = index.store.active_version
        rows = [item_arrays.row_ids(index.store, name) for name in (rows_name(version), features_name(version))]
        assert len(np.unique(np.concatenate(rows))) == len(found["items"]), "an item has neither a row nor features"


def check_vectors_and_backup(folder: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that the backup holds what was acknowledged, or what the next step writes, and the index itself."""

    def read(index: LocalIndex) -> Mark:
        found = read_state(index)
        check_filters(index, found["columns"])
        assert index.refinement is None or check_refined_order(index, found) == found["items"].keys()
        return found | {"kind": None if index.refinement is None else index.refinement.kind}

    check_backup(folder, before, following, read, check_vectors)


WORKLOADS = {each.__name__: each for each in (columns, refined, backfilled)}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
