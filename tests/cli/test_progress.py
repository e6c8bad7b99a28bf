import pytest
from rich import progress as rich_progress

from proxyhash.cli.progress import progress_bars
from proxyhash.utils.progress import no_progress


def test_details_after_the_colon_do_not_add_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    displays: list[rich_progress.Progress] = []

    class RecordingProgress(rich_progress.Progress):
        def start(self) -> None:
            displays[:] = [self]

    monkeypatch.setenv("FORCE_COLOR", "1")  # standard error counts as a terminal
    monkeypatch.setattr(rich_progress, "Progress", RecordingProgress)
    with progress_bars() as progress:
        progress("extracting features", 1.0)
        progress("training: loss 2.000, 10 images/s", 0.25)
        progress("training: loss 1.000, 12 images/s", 0.5)
    (display,) = displays
    assert [(task.description, task.completed) for task in display.tasks] == [
        ("extracting features", 1.0),
        ("training: loss 1.000, 12 images/s", 0.5),
    ]
    with progress_bars(enabled=False) as progress:
        assert progress is no_progress
