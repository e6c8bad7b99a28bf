"""Refinement of the snapshots of an index: rows of queries, and rows of segments in memory."""

import numpy as np

from proxyhash.index.clusters.segment import Segment
from proxyhash.index.local.aligned_arrays import AlignedArrays
from proxyhash.index.local.snapshots import RowsOf, Snapshot
from proxyhash.index.local.store import Store
from proxyhash.index.queries import EncodedQueries
from proxyhash.index.refinement.distances import RefinedRows, refined_rows
from proxyhash.index.refinement.refiner import Rows
from proxyhash.index.refinement.storage import Refinement, read_refinement, rows_name


class RefinementCache:
    """The refinement of the latest snapshot, read again after a change of the index."""

    def __init__(self, store: Store, arrays: AlignedArrays) -> None:
        self._store, self._arrays = store, arrays
        self._known: tuple[tuple[int, int, int] | None, Refinement | None] = None, None

    def get(self, snapshot: Snapshot) -> Refinement | None:
        """Return the refinement of a snapshot, if it has one that is fitted.

        It belongs to the snapshot if that is still the latest when the search ends.
        """
        found = self._read((snapshot.times_opened, snapshot.generation, snapshot.version))
        return None if found is None or found.refiner is None else found

    def latest(self) -> Refinement | None:
        """Return the refinement of the active codes as it is now; None without one."""
        with self._store.reading():
            version, generation = self._store.active_version, self._store.generation
            return self._read((self._store.times_opened, generation, version))

    def _read(self, state: tuple[int, int, int]) -> Refinement | None:
        """Return the refinement of a version, read again if the index has another state than at the last time."""
        known, found = self._known
        if known != state:
            with self._store.reading():
                found = read_refinement(self._store, state[2])
            self._known = state, found
        return found

    def rows_of(self, snapshot: Snapshot, queries: EncodedQueries) -> RowsOf | None:
        """Return a function that gives the rows of a segment for some queries; None if they cannot be refined."""
        refinement = self.get(snapshot)
        mine = None if refinement is None else _query_rows(refinement, queries)
        if mine is None:
            return None
        rows = mine

        def align(segment: Segment) -> RefinedRows:
            found = self._arrays.get(snapshot, segment, rows_name(snapshot.version))
            values = found.values
            if values.shape[1] != rows.shape[1]:  # no item of the segment has a row
                values = np.zeros((len(found.known), rows.shape[1]), rows.dtype)
            return refined_rows(values, found.known, rows)

        return align


def _query_rows(refinement: Refinement, queries: EncodedQueries) -> Rows | None:
    """Return the rows of queries (Q, row_width); None if there is nothing to make them of."""
    if queries.rows is not None and queries.rows.refiner_id == refinement.refiner_id:
        assert refinement.refiner is not None
        return queries.rows.rows.view(refinement.refiner.dtype)
    if queries.features is None or refinement.refiner is None:
        return None
    return refinement.refiner.encode(queries.features)
