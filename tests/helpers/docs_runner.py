"""Runs the steps of a page as a person would: `python running.py PAGE FOLDER`.

A page gets a process of its own, because some register methods and networks.
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

from helpers.docs_inputs import prepare
from helpers.docs_pages import Page, Step, differs, read_page

from proxyhash.cli.app import main

_NEEDS_A_SHELL = re.compile(r"[|<>&;$*]|^(?!proxyhash )")


class PageError(AssertionError):
    """A page tells people something that is not so."""


@contextlib.contextmanager
def visitor(folder: Path) -> Iterator["Visitor"]:
    """Follow a page in a folder; programs that it leaves in the background end with it."""
    person = Visitor(folder)
    with contextlib.chdir(folder):
        try:
            yield person
        finally:
            person.leave()


class Visitor:
    """Somebody who types what a page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.background: list[subprocess.Popen[bytes]] = []
        self.port = str(_free_port())

    def follow(self, page: Page) -> None:
        """Do every step, and compare what comes back with what the page shows."""
        for step in page.steps:
            where = f"{page.path.name}:{step.line}: {step.text.strip()}"
            try:
                output = self.do(step)
            except PageError as error:
                raise PageError(f"{where}\n{error}") from error.__cause__
            if step.output is not None and (problem := differs(step.output, output)):
                raise PageError(f"{where}\n{problem}; the page shows\n{step.output}\nand this came\n{output}")

    def do(self, step: Step) -> str:
        """Return what one step printed."""
        if step.language == "python":
            return self._python(step.text)
        command = step.text.replace("8000", self.port)  # the page's port may be taken here
        if command.endswith(" &"):
            self.background.append(subprocess.Popen(["bash", "-c", f"exec {command[:-2]}"], stderr=subprocess.DEVNULL))
            return ""
        return self._shell(command) if _NEEDS_A_SHELL.search(command) else self._command(command)

    def _python(self, text: str) -> str:
        with _printed() as printed:
            exec(compile(text, "page", "exec"), self.names)
        return printed.getvalue()

    def _command(self, command: str) -> str:
        """Run `proxyhash` in this process: loading torch again for each command would take longer than the commands."""
        with _printed() as printed:
            try:
                main(shlex.split(command, comments=True)[1:])
            except SystemExit as end:
                if end.code:
                    raise PageError(f"it ended with {end.code}:\n{printed.getvalue()}") from end
        return printed.getvalue()

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
        )
        if done.returncode:
            raise PageError(f"it ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def leave(self) -> None:
        """End what runs in the background, as Ctrl-C would."""
        for process in self.background:
            process.send_signal(signal.SIGINT)
        for process in self.background:
            process.wait(60)


@contextlib.contextmanager
def _printed() -> Iterator[io.StringIO]:
    """Collect both streams, in order, as a terminal shows them."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def follow(path: Path, folder: Path) -> None:
    """Follow one page in an empty folder, with what it says must be there."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["COLUMNS"] = "120"
    page = read_page(path)
    with visitor(folder) as person:
        with _printed():
            prepare(page.ingredients)
        person.follow(page)


if __name__ == "__main__":
    try:
        follow(Path(sys.argv[1]), Path(sys.argv[2]))
    except PageError as problem:
        sys.exit(str(problem))
