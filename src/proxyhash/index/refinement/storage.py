"""Refinements in the file of an index: one for each version of the codes, in three item arrays.

`refiner:VERSION` has no rows; its settings are the kind and the refiner. `refinement:VERSION` has the rows of the items.
While there are too few items for a good fit, `features:VERSION` has their features, so that a later fit encodes them again.
"""

import re
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import item_arrays
from proxyhash.index.local.array_blocks import Rows
from proxyhash.index.local.item_arrays import ArrayInfo
from proxyhash.index.local.schema import FIRST_GENERATION
from proxyhash.index.local.store import Store
from proxyhash.index.queries import Features
from proxyhash.index.refinement.refiner import Kind, Refiner, check_kind
from proxyhash.utils.errors import InputError

MIN_FITTED = 1_000  # items for a fit that is kept; fits on fewer are repeated whenever the number of items has doubled
MAX_PENDING = 4_096  # items whose features are stored before a fit
_MAX_HALF = 60_000.0  # larger features are stored as float32

_NAMES = re.compile(r"(refiner|refinement|features):(\d+)")


@dataclass(frozen=True, eq=False)
class Refinement:
    """Refinement of one version of the codes.

    Attributes
    ----------
    kind
        What is stored for each item.
    refiner
        Encodes features; None before the first fit.
    is_final
        Whether the refiner was fitted on enough items to be kept.
    refiner_id
        Differs between refiners.
    """

    kind: Kind
    refiner: Refiner | None = None
    is_final: bool = False
    refiner_id: Hashable = None


def rows_name(version: int) -> str:
    """Return the name of the array with the rows of the items."""
    return f"refinement:{version}"


def _refiner_name(version: int) -> str:
    return f"refiner:{version}"


def features_name(version: int) -> str:
    """Return the name of the array with the features of items that wait for a fit."""
    return f"features:{version}"


def read_refinement(store: Store, version: int) -> Refinement | None:
    """Return the refinement of a version of the codes; None if it has none."""
    info = item_arrays.list_arrays(store).get(_refiner_name(version))
    return None if info is None else _parse(info)


def _parse(info: ArrayInfo) -> Refinement:
    settings = info.settings
    refiner = settings.get("refiner")
    identity = info.generation, zlib.crc32(info.settings_json.encode())
    kind = check_kind(settings.get("kind", ""))
    return Refinement(
        kind, None if refiner is None else Refiner.from_settings(refiner), bool(settings.get("final")), identity
    )


def create_refinement(store: Store, version: int, kind: Kind) -> None:
    """Give a version of the codes an empty refinement, instead of one that it has. In a transaction."""
    delete_refinement(store, version)
    item_arrays.set_settings(store, _refiner_name(version), {"kind": kind, "refiner": None, "final": False})


def create_first_refinement(store: Store, kind: Kind) -> None:
    """Give an index with a model a refinement if nothing was ever written to it: its creation may have been stopped."""
    if store.generation > FIRST_GENERATION:
        return
    with store.writing() as generation:
        version = store.active_version
        is_first = generation == FIRST_GENERATION + 1 and store.version_info(version).model is not None
        if is_first and read_refinement(store, version) is None:
            create_refinement(store, version, kind)


def delete_refinement(store: Store, version: int) -> None:
    """Delete the refinement of a version, if it has one. In a transaction."""
    for name in (_refiner_name(version), rows_name(version), features_name(version)):
        item_arrays.delete_array(store, name)


def drop_unused_refinements(store: Store) -> None:
    """Delete the refinements of versions that do not exist any more. In a transaction."""
    versions = store.list_versions().keys()
    for name in item_arrays.list_arrays(store):
        match = _NAMES.fullmatch(name)
        if match is not None and int(match[2]) not in versions:
            item_arrays.delete_array(store, name)


def name_in_copy(name: str, old: int | None, new: int) -> str | None:
    """Return the name of an array in a copy of an index, where the version `old` of the codes is called `new`.

    None if it is the refinement of another version.

    >>> name_in_copy("refinement:3", 3, 1), name_in_copy("refinement:2", 3, 1), name_in_copy("vectors", 3, 1)
    ('refinement:1', None, 'vectors')
    """
    match = _NAMES.fullmatch(name)
    if match is None:
        return name
    return f"{match[1]}:{new}" if int(match[2]) == old else None


def add_features(store: Store, version: int, item_ids: UInt32s, features: Features) -> None:
    """Store the refinement of items, given by ascending ids; nothing if the version has none. In a transaction.

    Items that have a row already get a new one.

    Raises
    ------
    InputError
        For features of another width than those before.
    """
    refinement = read_refinement(store, version)
    if refinement is None or not len(item_ids):
        return
    if not refinement.is_final:
        _merge_rows(store, features_name(version), item_ids, _to_half(features[:]))
    if refinement.refiner is not None:
        _merge_rows(store, rows_name(version), item_ids, refinement.refiner.encode(features))


def fit_if_due(store: Store, version: int, *, is_end: bool = True) -> None:
    """Fit the refiner of a version on the features that are stored, and encode these items, if it is time for that.

    Parameters
    ----------
    store
        The file of the index.
    version
        The version of the codes.
    is_end
        Whether no more items follow for now. If more do, it waits for `MAX_PENDING` items.
    """
    with store.reading():
        refinement, count = read_refinement(store, version), item_arrays.count_rows(store, features_name(version))
        if refinement is None or not _is_due(refinement, count, is_end=is_end):
            return
        _, features = item_arrays.read_array(store, features_name(version))
    from proxyhash.index.refinement.fitting import fit_refiner  # imports scipy, which searches do not need

    _replace_refiner(store, version, refinement, fit_refiner(features, refinement.kind), is_final=count >= MIN_FITTED)


def _is_due(refinement: Refinement, count: int, *, is_end: bool) -> bool:
    if refinement.is_final or count < 2 or not is_end:
        return not refinement.is_final and count >= MAX_PENDING
    return refinement.refiner is None or count >= min(MIN_FITTED, 2 * refinement.refiner.fitted_on)


def fit_on_sample(store: Store, version: int, features: Features) -> None:
    """Fit the refiner of a version on items that are about to be added, if they are enough and it is not fitted yet."""
    refinement = read_refinement(store, version)
    if refinement is None or refinement.is_final or len(features) < MIN_FITTED:
        return
    from proxyhash.index.refinement.fitting import fit_refiner  # imports scipy, which searches do not need

    _replace_refiner(store, version, refinement, fit_refiner(features, refinement.kind), is_final=True)


def _replace_refiner(store: Store, version: int, old: Refinement, refiner: Refiner, *, is_final: bool) -> None:
    """Store a refiner, and encode all items whose features are stored, unless another process was faster."""
    with store.writing():
        now = read_refinement(store, version)
        if now is None or now.refiner_id != old.refiner_id:
            return
        item_ids, features = item_arrays.read_array(store, features_name(version))
        if len(item_ids) and features.shape[1] != refiner.num_features:
            raise InputError(f"Items of the index have {features.shape[1]} features, and new ones {refiner.num_features}.")
        item_arrays.delete_array(store, rows_name(version))
        if len(item_ids):
            item_arrays.append_rows(store, rows_name(version), item_ids, refiner.encode(features))
        settings = {"kind": old.kind, "refiner": refiner.to_settings(), "final": is_final}
        item_arrays.set_settings(store, _refiner_name(version), settings)
        if is_final:
            item_arrays.delete_array(store, features_name(version))


def _merge_rows(store: Store, name: str, item_ids: UInt32s, rows: Rows) -> None:
    """Add rows to an array; it is written again if their ids are not larger than all before."""
    infos = item_arrays.list_array_blocks(store, name).values()
    if item_ids[0] <= max((info.max_id for info in infos), default=-1):
        old_ids, old_rows = item_arrays.read_array(store, name)
        kept = ~np.isin(old_ids, item_ids)
        numbers = np.concatenate([old_ids[kept], item_ids])
        order = np.argsort(numbers)
        item_arrays.delete_array(store, name)
        item_ids, rows = numbers[order], np.concatenate([old_rows[kept], rows])[order]
    item_arrays.append_rows(store, name, item_ids, rows)


def _to_half(features: NDArray[np.float32]) -> Rows:
    """Return features as they are stored until the refiner is fitted."""
    return features.astype(np.float16 if np.abs(features).max(initial=0) < _MAX_HALF else np.float32)


def stored_rows(store: Store, version: int, item_ids: Sequence[int]) -> Rows | None:
    """Return the rows (n, row_width) of some items in their order; None if one of them has none."""
    wanted = np.unique(np.array(item_ids, np.uint32))
    found = list(item_arrays.find_rows(store, rows_name(version), wanted))
    if sum(map(len, found)) < len(wanted):
        return None
    rows = np.concatenate([block.rows for block in found])
    return rows[np.searchsorted(wanted, item_ids)]
