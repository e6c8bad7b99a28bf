"""Execution of steps; a second run continues after the last finished step."""

import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proxyhash.quickstart.config import OutputPaths
from proxyhash.quickstart.steps import Step
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json
from proxyhash.utils.legacy_names import quickstart_command_0_1, upgrade_quickstart
from proxyhash.utils.progress import Progress, no_progress

FORMAT = "proxyhash.quickstart/2"
STATE_FILE = "quickstart.json"


@dataclass
class RunState:
    """Finished steps, on disk.

    Attributes
    ----------
    path
        The state file.
    data
        Fingerprint of the data set.
    steps
        Command and result of each finished step, by title.
    running
        Command of the step that was started and did not finish.
    """

    path: Path
    data: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, data: str) -> Self:
        """Return the state of an earlier run on the same data, or an empty one."""
        state = cls(folder / STATE_FILE, data)
        if not state.path.exists():
            return state
        try:
            content = read_json(state.path)
            check_format(state.path, content.get("format"), (FORMAT, "proxyhash.quickstart/1"), content.get(REQUIRES))
            content = upgrade_quickstart(content)
            if content["data"] == data:
                state.steps, state.running = _steps(content["steps"]), list(content["running"])
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; delete it to start again.") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{state.path} is damaged: it lacks {error}; delete it to start again.") from error
        return state

    def start(self, step: Step) -> bool:
        """Write that a step is started, and return True if it was interrupted before."""
        interrupted = self.running == list(step.command)
        self.running = list(step.command)
        self._write()
        return interrupted

    def finish(self, step: Step, result: Any) -> None:
        """Write the result of a step."""
        self.steps[step.title] = {"command": list(step.command), "result": result}
        self.running = []
        self._write()

    def is_done(self, step: Step) -> bool:
        """Return True if the step was finished with the same options and its output is there."""
        done = self.steps.get(step.title)
        if done is None or not step.output.exists():
            return False
        return done["command"] in (list(step.command), quickstart_command_0_1(step.command))

    def _write(self) -> None:
        content = {"format": FORMAT, REQUIRES: RELEASE, "data": self.data, "running": self.running, "steps": self.steps}
        with atomic_write(self.path) as temporary:
            temporary.write_text(dump_json(content), encoding="utf-8")


def _steps(steps: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the finished steps; one without its command or result is an error."""
    return {title: {"command": list(step["command"]), "result": step["result"]} for title, step in steps.items()}


def check_output_folder(images: Path, folder: Path) -> None:
    """Refuse a folder inside the images, whose content would count as a class, and a folder with other content."""
    if folder.resolve().is_relative_to(images.resolve()):
        raise InputError(f"{folder} lies among the images of {images}; choose a folder elsewhere with -o.")
    if folder.is_file():
        raise InputError(f"{folder} is a file; choose a folder with -o.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STATE_FILE).is_file():
        raise InputError(f"{folder} holds other things; choose another folder with -o.")


def run_steps(
    steps: Iterable[Step],
    paths: OutputPaths,
    data: str,
    *,
    progress: Callable[[], AbstractContextManager[Progress]] = lambda: nullcontext(no_progress),
    report: Callable[[Step, bool], None] = lambda *_: None,
) -> dict[str, Any]:
    """Run the steps that are not finished.

    Parameters
    ----------
    steps
        The steps, in order. After the first step that runs, all others run too.
    paths
        Outputs.
    data
        Fingerprint of the data set; with another one everything runs again.
    progress
        Makes a progress callback for each step.
    report
        Called after each step with the step, and True if it was finished before.

    Returns
    -------
    dict
        The result of each step by title.
    """
    state = RunState.read(paths.folder, data)
    if not state.steps and not state.running:  # the first run, or other images
        shutil.rmtree(paths.results, ignore_errors=True)
    is_current = True
    for step in steps:
        is_current = is_current and state.is_done(step)
        if not is_current:
            was_interrupted = state.start(step)
            with progress() as step_progress:
                run = step.resume if was_interrupted and step.resume is not None else step.run
                state.finish(step, run(step_progress))
        report(step, is_current)
    return {title: done["result"] for title, done in state.steps.items()}
