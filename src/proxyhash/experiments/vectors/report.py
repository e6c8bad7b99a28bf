"""Results of a comparison of encodings, and what to choose."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.utils.environment import provenance

GOOD_RECALL = 0.9


@dataclass(frozen=True)
class EncodingResult:
    """One row of the table.

    Parameters
    ----------
    name
        The encoding, such as `OPQ`.
    bytes_per_item
        Size of one encoded vector.
    shared_bytes
        Size of what all items share, such as codebooks.
    recall
        Share of exact neighbors that are found, by k.
    map
        Mean average precision by labels; None without labels.
    bits
        Code length, for codes that are compared by Hamming distance.
    seconds
        Time to fit, and to encode and rank.
    """

    name: str
    bytes_per_item: int
    shared_bytes: int
    recall: dict[int, float]
    map: float | None = None
    bits: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the name, with the code length of codes."""
        return self.name if self.bits is None else f"{self.name}, {self.bits} bits"


@dataclass(frozen=True)
class VectorEvalReport:
    """The table, smallest encodings first, and the data that it was measured on.

    Parameters
    ----------
    rows
        Results by bytes per item; of equal size the best recall comes first.
    notes
        What was left out, and why.
    config
        What was compared.
    database, queries, width
        Numbers of vectors and of values of a vector.
    """

    rows: tuple[EncodingResult, ...]
    notes: tuple[str, ...]
    config: VectorEvalConfig
    database: int
    queries: int
    width: int

    @property
    def main_k(self) -> int:
        """Return the k of recall@k that decides: 10, or the largest."""
        return main_k(tuple(self.rows[0].recall))

    def advice(self) -> list[str]:
        """Return sentences that say what to choose."""
        return choose(self.rows, self.main_k)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        data = {"database": self.database, "queries": self.queries, "width": self.width}
        rows = [{**asdict(row), "recall": {str(k): value for k, value in row.recall.items()}} for row in self.rows]
        content = {"config": asdict(self.config), "data": data, "rows": rows}
        return {**content, "notes": list(self.notes), "advice": self.advice(), **provenance()}


def main_k(ks: Sequence[int]) -> int:
    """Return the k that decides: 10, or the largest."""
    return 10 if 10 in ks else max(ks)


def choose(rows: Sequence[EncodingResult], k: int) -> list[str]:
    """Return sentences that say what to choose from rows, the smallest first.

    Examples
    --------
    >>> small, large = EncodingResult("PQ", 8, 0, {10: 0.5}), EncodingResult("int8", 64, 0, {10: 0.95})
    >>> choose([small, large], 10)[0]
    'For a recall@10 of at least 0.9 choose int8: 64 bytes per item, recall@10 0.950.'
    """
    sentences = []
    good = [row for row in rows if row.recall[k] >= GOOD_RECALL]
    if good:
        best = good[0]
        sentences.append(
            f"For a recall@{k} of at least {GOOD_RECALL} choose {best.title}: {best.bytes_per_item:,} bytes per item, "
            f"recall@{k} {best.recall[k]:.3f}."
        )
    smaller = [row for row in rows if not good or row.bytes_per_item < good[0].bytes_per_item]
    # A row is worth its size if every smaller one finds less.
    worth = [row for row in smaller if all(row.recall[k] > other.recall[k] for other in smaller[: smaller.index(row)])]
    if worth:
        each = ", ".join(f"{row.bytes_per_item:,} bytes {row.title} ({row.recall[k]:.3f})" for row in worth)
        sentences.append(f"The best recall@{k} of smaller sizes: {each}.")
    hashed = [row for row in rows if row.bits is not None]
    if hashed:
        best = max(hashed, key=lambda row: (row.recall[k], -row.bytes_per_item))
        sentences.append(
            f"Of codes for an index with Hamming distances, {best.title} keeps most: {best.bytes_per_item:,} bytes per "
            f"item, recall@{k} {best.recall[k]:.3f}."
        )
    return sentences
