"""Results of an index: matches, added items, and a description of the index."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.columns import ColumnType, to_json_value
from proxyhash.index.calibration import Calibration
from proxyhash.index.hits import NO_ROW, Hits
from proxyhash.index.local.items import Item

Refined = Literal["all", "found"]


class Match(NamedTuple):  # a frozen dataclass takes twice as long to make, and a batch of queries makes thousands
    """One item that was found.

    Attributes
    ----------
    key
        Key of the item.
    distance
        Number of bits that differ from the query.
    item_id
        Number that the item was given when it was added; ties in distance go to the lower one.
    labels
        Labels or tags of the item.
    expected_precision
        Share of validation pairs at this distance that are alike; None if the model was not calibrated.
    score
        Distance to the real-valued query; None unless candidates were re-ranked.
    path
        File that the item was added from; None for a code without a file.
    code
        Packed code, if it was asked for.
    row
        Row of the vector in its file; None for an image, and without a file.
    columns
        Values of the columns of the item by name: numbers, texts, and dates as datetimes in UTC.
    refinement
        Refinement distance, by which items at the same distance are ordered; None if it was not used, or the item has none.

    Examples
    --------
    >>> Match("cats/7.jpg", 3, 0, ("cat",), 0.73)
    Match('cats/7.jpg', 3 bits, 73 % same label)
    """

    key: str
    distance: int
    item_id: int
    labels: tuple[str, ...] = ()
    expected_precision: float | None = None
    score: float | None = None
    path: Path | None = None
    code: bytes | None = None
    row: int | None = None
    columns: Mapping[str, Any] = MappingProxyType({})
    refinement: int | None = None

    def __repr__(self) -> str:
        """Return key, distance and expected precision."""
        precision = "" if self.expected_precision is None else f", {100 * self.expected_precision:.0f} % same label"
        return f"Match({self.key!r}, {self.distance} bits{precision})"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields that are set, for JSON."""
        fields = {name: value for name, value in self._asdict().items() if value is not None}
        if self.path is not None:
            fields["path"] = str(self.path)
        if self.code is not None:
            fields["code"] = self.code.hex()
        del fields["columns"]
        if self.columns:
            fields["columns"] = {name: to_json_value(value) for name, value in self.columns.items()}
        return fields


@dataclass(frozen=True)
class Matches(Sequence[Match]):
    """Matches of one query, best first.

    Attributes
    ----------
    query
        Name of the query: its path, or a number.
    matches
        Items that were found.
    matched
        False if even the nearest item is too far to be alike; None if the model was not calibrated.
    exact
        False after an approximate search, which may miss items.
    plan
        How the items were found: "scan", "clusters" or "mih" (multi-index hashing), "ivf" if approximately, or "milvus".
    compared
        Number of codes that the query was compared with, the mean of the batch for a scan or clusters; None if it is not
        known.
    refined
        "all" if all items at the same distance were compared by their refinement, "found" if only those that an approximate
        search found; None if items were not refined.

    Examples
    --------
    >>> found = Matches("query.jpg", (Match("cats/7.jpg", 3, 0), Match("dogs/1.jpg", 9, 1)))
    >>> found.keys, found[0].distance
    (['cats/7.jpg', 'dogs/1.jpg'], 3)
    """

    query: str
    matches: tuple[Match, ...]
    matched: bool | None = None
    exact: bool = True
    plan: str | None = None
    compared: int | None = None
    refined: Refined | None = None

    @overload
    def __getitem__(self, index: int) -> Match: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Match, ...]: ...
    def __getitem__(self, index: int | slice) -> Match | tuple[Match, ...]:
        """Return one match, or some."""
        return self.matches[index]

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.matches)

    def __iter__(self) -> Iterator[Match]:
        """Iterate over the matches, best first."""
        return iter(self.matches)

    @property
    def keys(self) -> list[str]:
        """Return the keys, best first."""
        return [match.key for match in self.matches]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "query": self.query,
            "matched": self.matched,
            "exact": self.exact,
            "plan": self.plan,
            "compared": self.compared,
            **({} if self.refined is None else {"refined": self.refined}),
            "matches": [match.as_dict() for match in self.matches],
        }

    def __repr__(self) -> str:
        """Return the number of matches, and the first of them."""
        first = f", first {self.matches[0]!r}" if self.matches else ""
        notes = ("" if self.exact else ", approximate") + (", no match" if self.matched is False else "")
        return f"Matches({len(self.matches):,} for {self.query!r}{first}{notes})"


@dataclass(frozen=True)
class AddResult:
    """Counts of an add.

    Attributes
    ----------
    added
        Items with new keys.
    replaced
        Items whose keys existed.
    unchanged
        Files that were skipped because they did not change.
    removed
        Items that were removed because their files are gone.
    unreadable
        Images that could not be read.
    seconds
        Time that it took.

    Examples
    --------
    >>> AddResult(5, replaced=2)
    AddResult(5, 2 replaced)
    """

    added: int
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    unreadable: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Return the counts that are not 0."""
        words = {"replaced": self.replaced, "unchanged": self.unchanged, "removed": self.removed}
        words["unreadable"] = self.unreadable
        return f"AddResult({self.added:,}" + "".join(f", {count:,} {word}" for word, count in words.items() if count) + ")"


@dataclass(frozen=True)
class IndexInfo:
    """Description of an index.

    Attributes
    ----------
    location
        Its folder or address.
    items, bits
        Number of items, and the length of their codes.
    model
        Fingerprint of the model; None for codes from elsewhere.
    plan
        How it is searched: "scan", or the number of clusters.
    calibrated
        Whether matches have an expected precision.
    sources
        Folders that images came from, or files of vectors; None on a server, which does not list them.
    bytes_on_disk
        Size of the folder; None on a server.
    input
        What the model encodes: "image" or "vector"; "code" without a model.
    width
        Number of values of the vectors that the model takes; None if it takes images.
    kept_vectors
        Number of vectors that are kept in the index.
    memory
        Bytes that the codes take in memory by each exact plan that is possible; empty on a server.
    tables_bytes
        Bytes of the tables of multi-index hashing that this process has built; 0: none.
    mean_compared
        Mean number of codes that a query of this process was compared with; None before the first search, and on a server.
    searched_by
        Number of queries of this process that were answered by each exact plan.
    columns
        Types of the columns of items by name: "number", "text" or "date".
    refinement
        Kind of the refinement; None without one.
    refined_items
        Number of items that have a row of the refinement.

    Examples
    --------
    >>> IndexInfo("photos.index", 1000, 64, None, "scan", False, (), 5)
    IndexInfo(photos.index: 1,000 items of 64 bits, scan)
    """

    location: str
    items: int
    bits: int
    model: str | None
    plan: str
    calibrated: bool
    sources: tuple[str, ...] | None
    bytes_on_disk: int | None
    input: Literal["image", "vector", "code"] = "code"
    width: int | None = None
    kept_vectors: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    tables_bytes: int = 0
    mean_compared: float | None = None
    searched_by: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    refinement: str | None = None
    refined_items: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Return the description in one line."""
        return f"IndexInfo({self.location}: {self.items:,} items of {self.bits} bits, {self.plan})"


def build_matches(
    names: Sequence[str],
    hits: Hits,
    items: Mapping[int, Item],
    calibration: Calibration | None,
    threshold: float,
    *,
    width: int | None = None,
    exact: bool = True,
    refined: Refined | None = None,
) -> list[Matches]:
    """Return the matches of each query from hits and their items; hits without an item are left out.

    With `width`, matches carry their codes as so many bytes.
    """
    distances, item_ids = hits.distances.tolist(), hits.item_ids.tolist()
    nothing = [None] * len(item_ids)
    scores = nothing if hits.scores is None else [round(float(score), 4) for score in hits.scores]
    codes = nothing if width is None or hits.codes is None else _code_bytes(hits.codes, width)
    refinements = nothing if refined is None else [None if row == NO_ROW else row for row in hits.refinements.tolist()]
    precision = nothing if calibration is None else calibration.at(hits.distances).tolist()
    out = []
    for query, name in enumerate(names):
        rows = range(hits.offsets[query], hits.offsets[query + 1])
        found = []
        for row in rows:
            item = items.get(item_ids[row])
            if item is not None:
                _, key, labels, path, _, file_row, columns = item
                score, code = scores[row], codes[row]
                fields = (key, distances[row], item_ids[row], labels, precision[row], score, path, code, file_row, columns)
                found.append(Match(*fields, refinements[row]))
        nearest = min((distances[row] for row in rows), default=None)
        plan, compared = (None if exact else "ivf", None) if hits.stats is None else hits.stats.of_query(query)
        matched = is_matched(nearest, calibration, threshold)
        out.append(Matches(name, tuple(found), matched, exact, plan, compared, refined))
    return out


def is_matched(nearest: int | None, calibration: Calibration | None, threshold: float) -> bool | None:
    """Return whether the nearest distance has an expected precision of at least `threshold`; None: not calibrated."""
    if calibration is None:
        return None
    return nearest is not None and bool(calibration.at(nearest) >= threshold)


def _code_bytes(codes: Words, width: int) -> list[bytes]:
    """Return codes (n, W) as packed bytes, `width` each."""
    everything = np.ascontiguousarray(codes, "<u8").tobytes()
    return [everything[start : start + width] for start in range(0, len(everything), 8 * codes.shape[1])]
