"""What an index answers: small typed results that read well when they are printed."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload


class Match(NamedTuple):  # thousands are made for a batch of queries, and a frozen dataclass takes twice as long
    """One item that was found. `score` is its distance to the real-valued query, if candidates were re-ranked."""

    key: str
    distance: int  # bits that differ
    position: int  # the number it was given when it was added: ties go to the lower one
    labels: tuple[str, ...] = ()
    expected_precision: float | None = None  # how often validation images at this distance were alike
    score: float | None = None
    path: Path | None = None  # of the file it was added from
    code: bytes | None = None  # packed, if it was asked for

    def __repr__(self) -> str:
        """Say what was found and how far it is."""
        precision = "" if self.expected_precision is None else f", {100 * self.expected_precision:.0f} % alike"
        return f"Match({self.key!r}, {self.distance} bits{precision})"

    def as_dict(self) -> dict[str, Any]:
        """Return what is known of it, for JSON."""
        facts = {name: value for name, value in self._asdict().items() if value is not None}
        if self.path is not None:
            facts["path"] = str(self.path)
        if self.code is not None:
            facts["code"] = self.code.hex()
        return facts


@dataclass(frozen=True)
class Matches(Sequence[Match]):
    """What was found for one query, best first. `matched` is False if even the nearest is too far to be alike."""

    query: str
    found: tuple[Match, ...]
    matched: bool | None = None  # None: the model was not calibrated, so nobody knows
    exact: bool = True  # False: by the approximate mode, which may miss items

    @overload
    def __getitem__(self, place: int) -> Match: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Match, ...]: ...
    def __getitem__(self, place: int | slice) -> Match | tuple[Match, ...]:
        """Return one match, or some."""
        return self.found[place]

    def __len__(self) -> int:
        """Return how many were found."""
        return len(self.found)

    def __iter__(self) -> Iterator[Match]:
        """Go through them, best first."""
        return iter(self.found)

    @property
    def keys(self) -> list[str]:
        """Return the keys, best first."""
        return [match.key for match in self.found]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "query": self.query,
            "matched": self.matched,
            "exact": self.exact,
            "matches": [match.as_dict() for match in self.found],
        }

    def __repr__(self) -> str:
        """Say how many were found, and the first of them."""
        first = f", first {self.found[0]!r}" if self.found else ""
        notes = ("" if self.exact else ", approximate") + (", no match" if self.matched is False else "")
        return f"Matches({len(self.found):,} for {self.query!r}{first}{notes})"


@dataclass(frozen=True)
class Added:
    """What an add did. `replaced` of the added ones had been there under the same key; `unchanged` files were skipped."""

    added: int
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    unreadable: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Say what happened, leaving out what did not."""
        words = {"replaced": self.replaced, "unchanged": self.unchanged, "removed": self.removed}
        words["unreadable"] = self.unreadable
        return f"Added({self.added:,}" + "".join(f", {count:,} {word}" for word, count in words.items() if count) + ")"


@dataclass(frozen=True)
class Info:
    """What is in an index."""

    location: str
    items: int
    bits: int
    model: str | None  # digits that change when the model does; None: codes from elsewhere
    plan: str  # how it is searched: scan, or so many groups
    calibrated: bool
    sources: tuple[str, ...] | None  # the folders that images came from; None: the server does not list them
    bytes_on_disk: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Say what it is in one line."""
        return f"Info({self.location}: {self.items:,} items of {self.bits} bits, {self.plan})"
