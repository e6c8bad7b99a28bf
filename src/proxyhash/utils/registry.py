"""Named objects with suggestions for misspelled names."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Generic, TypeVar

from proxyhash.utils.errors import InputError

T = TypeVar("T")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence: the closest known name, or all of them.

    >>> suggest("shclmm", ["hclm", "shclm"])
    'did you mean shclm?'
    >>> suggest("x", ["hclm", "shclm"])
    'choose from hclm, shclm.'
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known) or 'none'}."


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return `known[name]`; an unknown name raises an `InputError` with a suggestion. `kind` names the objects in it."""
    if name in known:
        return known[name]
    raise InputError(f"There is no {kind} {name!r}; {suggest(name, known)}")


class Registry(Generic[T], Mapping[str, T]):
    """Objects of one kind by name, in the order of registration.

    Examples
    --------
    >>> losses: Registry[Callable[[float], float]] = Registry("loss")
    >>> @losses.register("square")
    ... def square(error: float) -> float:
    ...     return error * error
    >>> losses.find("square")(3.0)
    9.0
    >>> losses.find("squire")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: There is no loss 'squire'; did you mean square?
    """

    total: ClassVar[int] = 0  # objects of all registries: tells whether a plugin registered any

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register an object; a name that is taken is an error."""
        if name in self._entries:
            raise InputError(f"There is already a {self.kind} {name!r}; choose another name.")
        self._entries[name] = entry
        Registry.total += 1

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object by name."""

        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    def find(self, name: str) -> T:
        """Return an object by name; an unknown name raises an `InputError` with a suggestion."""
        return lookup(self.kind, name, self._entries)

    def __getitem__(self, name: str) -> T:
        """Return an object by name, or raise a `KeyError`."""
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._entries)
