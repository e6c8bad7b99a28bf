import pytest
from rich.progress import Progress

from proxyhash.cli import show
from proxyhash.utils.progress import no_progress


def test_what_changes_about_a_work_does_not_add_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Progress] = []

    class Kept(Progress):
        def start(self) -> None:
            made[:] = [self]

    monkeypatch.setenv("FORCE_COLOR", "1")  # standard error counts as a terminal
    monkeypatch.setattr(show, "Progress", Kept)
    with show.progress_bars() as listen:
        listen("extracting features", 1.0)
        listen("training: loss 2.000, 10 images/s", 0.25)
        listen("training: loss 1.000, 12 images/s", 0.5)
    (bars,) = made
    assert [(task.description, task.completed) for task in bars.tasks] == [
        ("extracting features", 1.0),
        ("training: loss 1.000, 12 images/s", 0.5),
    ]
    with show.progress_bars(shown=False) as listen:
        assert listen is no_progress
