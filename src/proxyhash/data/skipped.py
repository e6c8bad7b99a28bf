"""Items of a data set that could not be used."""

from collections import Counter
from dataclasses import dataclass, field

from proxyhash.utils.errors import InputError
from proxyhash.utils.text import valid_text

MAX_EXAMPLES = 5  # items that are named for each kind of problem


@dataclass
class SkippedItems:
    """Counts and examples of skipped items, by kind of problem.

    Parameters
    ----------
    strict
        Raise at the first item instead of counting it. What is left out by rule, see `ignore`, is counted nevertheless.

    Examples
    --------
    >>> skipped = SkippedItems()
    >>> skipped.add("unreadable image", "cats/7.jpg")
    >>> skipped.sentences()
    ['unreadable image: 1 (cats/7.jpg)']
    """

    strict: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, item: str) -> None:
        """Count one item under `kind`, e.g. ("unreadable image", "cats/7.jpg cannot be decoded ...")."""
        if self.strict:
            raise InputError(f"Stopped at the first problem, as asked: {kind}: {item}")
        self._count(kind, item)

    def ignore(self, kind: str, item: str) -> None:
        """Count one item that is left out by rule, e.g. ("hidden file", ".DS_Store"): no problem even if `strict`."""
        self._count(kind, item)

    def update(self, other: "SkippedItems") -> None:
        """Count all items of another one, without raising."""
        for kind, count in other.counts.items():
            self.counts[kind] += count
            named = self.examples.setdefault(kind, [])
            named += other.examples[kind][: MAX_EXAMPLES - len(named)]

    def _count(self, kind: str, item: str) -> None:
        self.counts[kind] += 1
        named = self.examples.setdefault(kind, [])
        if len(named) < MAX_EXAMPLES:
            named.append(valid_text(item))

    def copy(self) -> "SkippedItems":
        """Return a copy that can be continued without changing this one."""
        return SkippedItems(self.strict, self.counts.copy(), {kind: list(named) for kind, named in self.examples.items()})

    def __bool__(self) -> bool:
        """Return whether any item was skipped."""
        return bool(self.counts)

    def sentences(self) -> list[str]:
        """Return one line for each kind: how many, and the first few by name."""
        return [f"{kind}: {count:,} ({_listed(self.examples[kind], count)})" for kind, count in self.counts.items()]

    def as_dict(self) -> dict[str, dict[str, object]]:
        """Return counts and examples for JSON."""
        return {kind: {"count": count, "examples": self.examples[kind]} for kind, count in self.counts.items()}


def _listed(items: list[str], count: int) -> str:
    more = count - len(items)
    return "; ".join(items) + (f"; and {more:,} more" if more else "")
