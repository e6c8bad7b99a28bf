"""Runner for the commands and the Python code of one documentation page: `python -m helpers.docs_runner PAGE FOLDER`.

Each page runs in its own process, because some pages register methods and networks.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.docs_inputs import make_inputs
from helpers.docs_pages import Page, Step, differs, read_page
from proxyhash.cli.app import main

_NEEDS_A_SHELL = re.compile(r"[|<>&;$*]|^(?!proxyhash )")


class PageError(AssertionError):
    """A step of a page fails, or prints something else than the page shows."""


class PageRunner:
    """Runs the steps of a page; one Python namespace and one port for the whole page."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.background: list[subprocess.Popen[bytes]] = []
        self.port = str(_free_port())

    def run(self, page: Page) -> None:
        """Run every step and compare its output with the output on the page."""
        for step in page.steps:
            where = f"{page.path.name}:{step.line}: {step.text.strip()}"
            try:
                output = self.run_step(step)
            except PageError as error:
                raise PageError(f"{where}\n{error}") from error.__cause__
            if step.output is not None and (problem := differs(step.output, output, step.tolerance)):
                raise PageError(f"{where}\n{problem}; the page shows\n{step.output}\nand this came\n{output}")

    def run_step(self, step: Step) -> str:
        """Run one step and return its output."""
        if step.file is not None:
            Path(step.file).write_text(step.text, encoding="utf-8")
            return ""
        if step.language == "python":
            return self._python(step.text)
        command = step.text.replace("8000", self.port)  # the port on the page may be in use
        if command.endswith(" &"):
            self.background.append(subprocess.Popen(["bash", "-c", f"exec {command[:-2]}"], stderr=subprocess.DEVNULL))
            return ""
        return self._shell(command) if _NEEDS_A_SHELL.search(command) else self._command(command)

    def _python(self, text: str) -> str:
        with _captured() as captured:
            exec(compile(text, "page", "exec"), self.names)
        return captured.getvalue()

    def _command(self, command: str) -> str:
        """Run `proxyhash` in this process, because importing torch takes longer than most commands."""
        with _captured() as captured:
            try:
                main(shlex.split(command, comments=True)[1:])
            except SystemExit as end:
                if end.code:
                    raise PageError(f"it ended with {end.code}:\n{captured.getvalue()}") from end
        return captured.getvalue()

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
        )
        if done.returncode:
            raise PageError(f"it ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def stop_background(self) -> None:
        """Stop background processes as Ctrl-C does."""
        for process in self.background:
            process.send_signal(signal.SIGINT)
        for process in self.background:
            process.wait(60)


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    """Collect standard output and standard error in order."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_page(path: Path, folder: Path) -> None:
    """Make the inputs of a page in an empty folder and run its steps there."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["COLUMNS"] = "120"
    page, runner = read_page(path), PageRunner()
    with contextlib.chdir(folder):
        with _captured():
            make_inputs(page.inputs)
        try:
            runner.run(page)
        finally:
            runner.stop_background()


if __name__ == "__main__":
    try:
        run_page(Path(sys.argv[1]), Path(sys.argv[2]))
    except PageError as error:
        sys.exit(str(error))
