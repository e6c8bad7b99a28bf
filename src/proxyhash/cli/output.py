"""Output of commands: results as text or JSON, status messages, quiet mode.

Everything that is printed for people goes through `SafeConsole` or `print_line`, which escape control characters of names.
JSON has its own escapes.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from proxyhash.utils.text import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from proxyhash.proxies import ProxySet

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


class SafeConsole(Console):
    """A console that escapes control characters and marks of direction in everything it prints, styles apart.

    It reads no markup and no names of emoji, which a file name could hold.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return a string as text that is safe before its width is measured."""
        return super().render_str(_printable_lines(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is printed, escaped: those of `Text` do not come from `render_str`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_printable_lines(segment.text))


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))  # line breaks belong to the layout


def cell(text: str, style: str = "") -> Text:
    """Return text for a cell of a table, escaped before its width is measured; brackets are no markup."""
    return Text(printable(text), style)


def print_line(text: str) -> None:
    """Print one line for people, escaped."""
    print(printable(text), flush=True)


@contextmanager
def quiet_mode(quiet: bool = True) -> Iterator[None]:
    """Suppress progress bars and status messages in this context."""
    token = _QUIET.set(quiet or _QUIET.get())
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return True if only results and errors are printed."""
    return _QUIET.get()


def status_console(*, stderr: bool = False, enabled: bool = True) -> Console:
    """Return a console for status messages, one line each. It prints nothing in quiet mode or if not enabled."""
    return SafeConsole(stderr=stderr, highlight=False, soft_wrap=True, quiet=is_quiet() or not enabled)


class _StatusHandler(logging.Handler):
    """Prints log records as status messages on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of a record."""
        status_console(stderr=True).print(record.getMessage(), markup=False)


@contextmanager
def show_log(name: str) -> Iterator[None]:
    """Print what a logger announces in this context, from INFO on."""
    logger, handler = logging.getLogger(name), _StatusHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def print_result(result: Mapping[str, Any], *sentences: str, as_json: bool) -> None:
    """Print the result of a command: the mapping as JSON, or the sentences."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    console = status_console()
    for sentence in sentences:
        console.print(printable(sentence), markup=False)


def print_quality(console: Console, proxies: "ProxySet") -> None:
    """Print the quality of a proxy set as a table."""
    table = Table(title=proxies.title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    for name, value in proxies.describe():
        table.add_row(cell(name), cell(value))
    console.print(table)


def print_codes(console: Console, weights: "NDArray[np.float32]", names: Sequence[str]) -> None:
    """Print the signs of each proxy (C, bits) as filled and empty squares."""
    names = list(map(printable, names))
    width = max(map(len, names))
    for name, row in zip(names, weights, strict=True):
        squares = Text().join(Text("■", "bold cyan") if weight >= 0 else Text("□", "dim") for weight in row)
        console.print(Text(f"  {name:>{width}}  "), squares, sep="", soft_wrap=True)


class StepTimer:
    """Describes the time since the last step."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def describe(self, was_done: bool) -> str:
        """Return the seconds that a step took; `was_done` if it had been finished by an earlier run."""
        before, self._since = self._since, time.monotonic()
        return "done before" if was_done else f"done in {self._since - before:.0f} s"
