"""Progress bars on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.text import Text

from proxyhash.cli.output import SafeConsole, is_quiet
from proxyhash.utils.progress import Progress, no_progress


@contextmanager
def progress_bars(*, enabled: bool = True) -> Iterator[Progress]:
    """Yield a `Progress` callback with one bar for each kind of work; without a terminal it draws nothing.

    The bars are removed at the end.
    """
    console = SafeConsole(stderr=True)
    if is_quiet() or not (enabled and console.is_terminal):
        yield no_progress
        return
    columns = (
        bars.TextColumn("{task.description:<30}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeRemainingColumn(),
    )
    display = bars.Progress(*columns, console=console, transient=True)
    tasks: dict[str, bars.TaskID] = {}

    def update(work: str, fraction: float) -> None:
        display.start()  # not earlier: an error before any work leaves no bar behind
        name = work.partition(":")[0]
        if name not in tasks:
            tasks[name] = display.add_task(work, total=1.0)
        display.update(tasks[name], description=work, completed=fraction)

    try:
        yield update
    finally:
        display.stop()


@contextmanager
def counting_bar(work: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (done, total) whose bar shows items per second and the time left."""
    console = SafeConsole(stderr=True)
    if is_quiet() or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        _RateColumn(unit),
        bars.TimeRemainingColumn(),
    )
    display = bars.Progress(*columns, console=console, transient=True, speed_estimate_period=30)
    task = display.add_task(work, total=None)

    def update(done: int, total: int) -> None:
        display.start()
        display.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        display.stop()


class _RateColumn(bars.ProgressColumn):
    """Items per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: bars.Task) -> Text:
        """Return the rate, or nothing before the first item."""
        return Text(f"{task.speed:,.0f} {self.unit}/s" if task.speed else "", "progress.data.speed")
