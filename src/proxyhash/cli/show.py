"""How proxy sets and progress look in a terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from proxyhash.cli.output import is_quiet
from proxyhash.utils.progress import Progress as Listener
from proxyhash.utils.progress import no_progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from proxyhash.proxies import ProxySet


@contextmanager
def progress_bars(*, shown: bool = True) -> Iterator[Listener]:
    """Give a listener that draws one bar for each kind of work, if standard error is a terminal; they vanish at the end."""
    console = Console(stderr=True)
    if is_quiet() or not (shown and console.is_terminal):
        yield no_progress
        return
    columns = (TextColumn("{task.description:<30}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=console, transient=True)
    tasks: dict[str, TaskID] = {}

    def listen(work: str, fraction: float) -> None:
        bars.start()  # only now: nothing is drawn for an error that comes before any work
        name = work.partition(":")[0]
        if name not in tasks:
            tasks[name] = bars.add_task(work, total=1.0)
        bars.update(tasks[name], description=work, completed=fraction)

    try:
        yield listen
    finally:
        bars.stop()


@contextmanager
def counting_bar(work: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Give a listener for (done, total) that draws a bar with the number of things a second and the time left."""
    console = Console(stderr=True)
    if is_quiet() or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, speed_estimate_period=30)
    task = bar.add_task(work, total=None)

    def listen(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield listen
    finally:
        bar.stop()


class _Rate(ProgressColumn):
    """How many things a second are done."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Write the speed, once there is one."""
        return Text(f"{task.speed:,.0f} {self.unit}/s" if task.speed else "", "progress.data.speed")


def print_quality(console: Console, proxies: "ProxySet") -> None:
    """Print the quality table."""
    table = Table(title=proxies.title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    for name, value in proxies.describe():
        table.add_row(Text(name), Text(value))
    console.print(table)


def print_codes(console: Console, weights: "NDArray[np.float32]", names: Sequence[str]) -> None:
    """Print the sign of each class's proxy as a strip of bits."""
    width = max(map(len, names))
    for name, row in zip(names, weights, strict=True):
        strip = Text().join(Text("■", "bold cyan") if weight >= 0 else Text("□", "dim") for weight in row)
        console.print(Text(f"  {name:>{width}}  "), strip, sep="", soft_wrap=True)
