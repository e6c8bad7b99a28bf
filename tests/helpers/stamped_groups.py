"""Groups of items that change together: writers, readers that check every answer, and ledgers of what was acknowledged.

The items of a group are added, replaced and removed in single transactions, and their labels carry the number of the change,
a stamp. An answer with two stamps in a group, or with a part of a group, is a state that was never committed.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.index import Index, Match, Matches
from proxyhash.utils.errors import InputError

BITS = 64
MEMBERS = 10  # of a group: the first half lies around one center, the second half around another one
HALF = MEMBERS // 2
RADIUS = 2  # of members around their center; two of 10,000 random centers are never that near each other
REMOVALS = 0.2  # share of the changes of a present group that remove it, so that 5 of 6 groups are present
GROUPS_PER_SEARCH = 4

Result = TypeVar("Result")


class Operation(NamedTuple):
    """What was done, and the seconds that the index took for it, without the checks."""

    did: str
    seconds: float


def timed(operation: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of an operation, and the seconds that it took."""
    start = time.perf_counter()
    result = operation()
    return result, time.perf_counter() - start


class WrongAnswerError(AssertionError):
    """An answer that fits no committed state of the index."""


@lru_cache(4)
def centers(groups: int) -> Packed:
    """Return the two centers of each group (groups, 2, bytes)."""
    return np.random.default_rng(groups).integers(0, 256, (groups, 2, BITS // 8), dtype=np.uint8)


@lru_cache(8192)
def members(groups: int, group: int, stamp: int) -> dict[str, bytes]:
    """Return the codes of a group by key, as the change `stamp` writes them: up to two bits from the center."""
    flips = np.zeros((MEMBERS, BITS), bool)
    chosen = np.random.default_rng((group, stamp)).integers(0, BITS, (MEMBERS, RADIUS))
    np.put_along_axis(flips, chosen, True, axis=1)
    codes = centers(groups)[group].repeat(HALF, axis=0) ^ np.packbits(flips, axis=1)
    return {key: code.tobytes() for key, code in zip(keys_of(group), codes, strict=True)}


def keys_of(group: int) -> list[str]:
    """Return the keys of a group."""
    return [f"group-{group:05d}/{member}" for member in range(MEMBERS)]


def group_of(key: str) -> int:
    """Return the group of a key."""
    return int(key[6:11])


def stamp_of(match: Match) -> int:
    """Return the stamp in the labels of an item."""
    (label,) = match.labels
    return int(label.removeprefix("stamp-"))


def state_number(stamp: int, *, present: bool) -> int:
    """Return the number of the state after a change: it grows from change to change, and is odd if the group is present."""
    return 2 * stamp + present


class Progress:
    """State numbers of all groups in a file that processes share: the last ones begun, acknowledged, and begun as a removal.

    A kill of a process does not lose them, because a mapped file outlives its process.
    """

    def __init__(self, path: Path, groups: int) -> None:
        if not path.exists():
            np.zeros((3, groups), np.int64).tofile(path)
        self.begun, self.acknowledged, self.removals = np.memmap(path, np.int64, "r+", shape=(3, groups))

    def begin(self, groups: Sequence[int], state: int) -> None:
        """Store the state of a change that begins."""
        if state % 2 == 0:
            self.removals[groups] = state
        self.begun[groups] = state

    def check(self, group: int, shown: int | None, before: int, *, stamped: bool = True) -> None:
        """Raise a WrongAnswerError if an answer is older than what was acknowledged before, or newer than what was begun.

        `shown` is the number of the state that the answer shows, None if the group is absent, and `before` the state that
        was acknowledged before the search. Without stamps, only the presence of the group is known.
        """
        begun, removal = int(self.begun[group]), int(self.removals[group])
        if shown is None:
            is_possible = before % 2 == 0 or removal > before
        elif stamped:
            is_possible = before <= shown <= begun
        else:
            is_possible = before % 2 == 1 or begun > before
        if not is_possible:
            raise WrongAnswerError(
                f"Group {group} is shown in state {shown}, of {before} (acknowledged) to {begun} (begun)."
            )


class Ledger:
    """Changes of one writer, each synced to disk before it begins and after it was acknowledged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write("\n")  # ends the line that a killed writer was at

    def append(self, event: str, groups: Sequence[int], state: int) -> None:
        """Write a line for each group and sync them: "begin" or "done", the group and its state."""
        self._write("".join(f"{event} {group} {state} .\n" for group in groups))

    def _write(self, lines: str) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class Recorded:
    """State numbers of a group in a ledger; the change to `begun` was in flight at a kill if `done` is lower."""

    begun: int
    done: int

    @property
    def is_known(self) -> bool:
        """Return whether the last change was acknowledged."""
        return self.begun == self.done


def read_ledger(path: Path) -> dict[int, Recorded]:
    """Return the last states of each group in a ledger; incomplete lines of a killed writer are left out."""
    begun: dict[int, int] = {}
    done: dict[int, int] = {}
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
        words = line.split()
        if len(words) == 4 and words[-1] == ".":
            (begun if words[0] == "begin" else done)[int(words[1])] = int(words[2])
    return {group: Recorded(state, done.get(group, 0)) for group, state in begun.items()}


class GroupWriter:
    """Adds, replaces and removes groups of its own at random; a change that was in flight at a kill is looked up."""

    def __init__(self, index: Index, progress: Progress, own: range, ledger: Path, seed: Sequence[int] = (0,)) -> None:
        self.index, self.progress, self.own = index, progress, own
        self._random = np.random.default_rng(seed)
        recorded = read_ledger(ledger)
        self._begun = {group: states.begun for group, states in recorded.items()}
        self._present = {group: bool(states.begun % 2) for group, states in recorded.items() if states.is_known}
        self._ledger = Ledger(ledger)

    def step(self) -> Operation:
        """Change a random group, and return what was done."""
        group = int(self._random.choice(self.own))
        if group not in self._present:
            self._present[group] = group in self._begun and self.holds(group)
        return self.change(group, present=not (self._present[group] and self._random.random() < REMOVALS))

    def fill(self) -> None:
        """Add five of six groups to an empty index, which is their share after many steps."""
        if groups := [group for group in self.own if group % 6]:
            self._change(groups, 1, present=True)

    def change(self, group: int, *, present: bool) -> Operation:
        """Add, replace or remove one group."""
        was_present = self._present.get(group, False)
        seconds = self._change([group], self._begun.get(group, 0) // 2 + 1, present=present)
        return Operation(("replace" if was_present else "add") if present else "remove", seconds)

    def _change(self, groups: Sequence[int], stamp: int, *, present: bool) -> float:
        """Change groups in one transaction, and return the seconds that it took."""
        state = state_number(stamp, present=present)
        for group in groups:
            self._present.pop(group, None)  # unknown, until the change is acknowledged
            self._begun[group] = state
        self._ledger.append("begin", groups, state)
        self.progress.begin(groups, state)
        _, seconds = timed(lambda: self.write(groups, stamp) if present else self.remove(groups))
        self._ledger.append("done", groups, state)
        self.progress.acknowledged[groups] = state
        self._present |= dict.fromkeys(groups, present)
        return seconds

    def holds(self, group: int) -> bool:
        """Return whether a group is in the index."""
        try:
            self.index.item(self.keys(group)[0])
        except InputError as error:
            if "has no item" not in str(error):
                raise
            return False
        return True

    def keys(self, group: int) -> list[str]:
        """Return the keys of a group."""
        return keys_of(group)

    def remove(self, groups: Sequence[int]) -> None:
        """Remove all items of groups."""
        self.index.remove([key for group in groups for key in self.keys(group)])

    def write(self, groups: Sequence[int], stamp: int) -> None:
        """Write all items of groups with a stamp."""
        codes = {key: code for group in groups for key, code in members(len(self.progress.begun), group, stamp).items()}
        packed = np.frombuffer(b"".join(codes.values()), np.uint8).reshape(len(codes), -1)
        self.index.add(packed, list(codes), [[f"stamp-{stamp}"]] * len(codes))


class GroupReader:
    """Searches random groups; raises a WrongAnswerError if an answer fits no committed state, or an older one than seen."""

    def __init__(self, index: Index, progress: Progress, seed: Sequence[int] = (0,)) -> None:
        self.index, self.progress = index, progress
        self._random = np.random.default_rng(seed)
        self._seen: NDArray[np.int64] = np.zeros(len(progress.begun), np.int64)

    def step(self) -> Operation:
        """Search for some groups by both of their centers in one call, and check them."""
        groups = self._random.choice(len(self._seen), min(GROUPS_PER_SEARCH, len(self._seen)), replace=False)
        before = self.progress.acknowledged[groups].copy()
        queries = np.ascontiguousarray(centers(len(self._seen))[groups].reshape(2 * len(groups), -1))
        if self._random.random() < 0.5:
            found, seconds = timed(lambda: self.index.search(queries, HALF, with_codes=True, threads=1))
        else:
            found, seconds = timed(lambda: self.index.range_search(queries, RADIUS, with_codes=True, threads=1))
        for query, matches in zip(queries, found, strict=True):
            check_distances(query, matches)
        for number, group in enumerate(groups.tolist()):
            own = [match for half in found[2 * number : 2 * number + 2] for match in half if group_of(match.key) == group]
            self._check(group, own, int(before[number]))
        return Operation("search", seconds)

    def read_all(self, before: NDArray[np.int64] | None = None) -> Operation:
        """Read all items by one search, and check every group.

        `before` has the states that were acknowledged before the index was copied; None: before this search.
        """
        before = self.progress.acknowledged.copy() if before is None else before
        found, seconds = timed(lambda: everything(self.index))
        for group, before_it in enumerate(before.tolist()):
            self._check(group, found.get(group, []), before_it)
        return Operation("read all", seconds)

    def _check(self, group: int, own: Sequence[Match], before: int) -> None:
        stamp = check_group(len(self._seen), group, own)
        shown = None if stamp is None else state_number(stamp, present=True)
        self.progress.check(group, shown, before)
        if shown is not None and shown < self._seen[group]:
            raise WrongAnswerError(f"Group {group} went back from state {self._seen[group]} to {shown}.")
        self._seen[group] = self._seen[group] if shown is None else shown


def everything(index: Index) -> dict[int, list[Match]]:
    """Return all items of an index by group, found by one search with a radius of all bits."""
    query = np.zeros((1, BITS // 8), np.uint8)
    (matches,) = index.range_search(query, BITS, with_codes=True, threads=1)
    check_distances(query[0], matches)
    found: dict[int, list[Match]] = {}
    for match in matches:
        found.setdefault(group_of(match.key), []).append(match)
    return found


def check_distances(query: Packed, matches: Matches) -> None:
    """Raise a WrongAnswerError unless distances are those of the returned codes, and ascend."""
    codes = np.frombuffer(b"".join(match.code or b"" for match in matches), np.uint8).reshape(-1, len(query))
    distances = np.bitwise_count(codes ^ query).sum(axis=1, dtype=int)
    if distances.tolist() != [match.distance for match in matches]:
        raise WrongAnswerError(f"Distances differ from those of the returned codes: {matches!r}.")
    order = [(match.distance, match.item_id) for match in matches]
    if order != sorted(order):
        raise WrongAnswerError(f"Matches are not in the order of distance and item id: {matches!r}.")


def check_group(groups: int, group: int, found: Sequence[Match]) -> int | None:
    """Return the stamp of a group in an answer, None if it is absent; raise a WrongAnswerError if it is no whole state."""
    if not found:
        return None
    stamps = {stamp_of(match) for match in found}
    if len(stamps) > 1:
        raise WrongAnswerError(f"Group {group} mixes the stamps {sorted(stamps)}.")
    stamp = stamps.pop()
    if len(found) != MEMBERS or {match.key for match in found} != set(keys_of(group)):
        raise WrongAnswerError(f"Group {group} has {len(found)} of {MEMBERS} members: {sorted(m.key for m in found)}.")
    if {match.key: match.code for match in found} != members(groups, group, stamp):
        raise WrongAnswerError(f"Group {group} has other codes than those of stamp {stamp}.")
    return stamp


def lost_changes(shown: dict[int, int], ledgers: Sequence[Path]) -> list[str]:
    """Return a sentence for each group whose state in an index is neither the last acknowledged nor one in flight.

    `shown` has the state numbers of the groups that are present.
    """
    problems = []
    recorded = {group: states for ledger in ledgers for group, states in read_ledger(ledger).items()}
    for group, states in recorded.items():
        possible = {state if state % 2 else None for state in (states.begun, states.done)}
        if shown.get(group) not in possible:
            problems.append(
                f"Group {group} is in state {shown.get(group)}, acknowledged {states.done}, begun {states.begun}."
            )
    problems += [f"Group {group} was never added." for group in sorted(set(shown) - set(recorded))]
    return problems


def states_of(index: Index, groups: int) -> dict[int, int]:
    """Return the state numbers of all groups that an index holds."""
    stamps = {group: check_group(groups, group, found) for group, found in everything(index).items()}
    return {group: state_number(stamp, present=True) for group, stamp in stamps.items() if stamp is not None}
