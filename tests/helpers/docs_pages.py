"""Steps of documentation pages: commands and Python code, with the output that the page shows."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

PROJECT = Path(__file__).parents[2]
RUN = ("console", "python")
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- not run: (.+) -->\n+\Z")
_VARIES = re.compile(r"<!-- the output depends on the processor -->\n+\Z")
_FILE = re.compile(r"<!-- file: (.+) -->\n+\Z")
_INPUTS = re.compile(r"<!-- in a folder with: (.+) -->")


@dataclass(frozen=True)
class Step:
    """One command, one block of Python or one file to write, with the output on the page; None if the page shows none.

    Numbers of the output may differ from the page by a share `tolerance`.
    """

    line: int
    language: str
    text: str
    output: str | None = None
    file: str | None = None
    tolerance: float = 0.05


@dataclass(frozen=True)
class Page:
    """A page: steps to run, steps that cannot run here with the reason, and the inputs it needs."""

    path: Path
    steps: tuple[Step, ...]
    not_run: tuple[tuple[Step, str], ...]
    inputs: tuple[str, ...]


def all_pages() -> list[Path]:
    """Return the README and all pages in docs."""
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def read_page(path: Path) -> Page:
    """Read the steps of a page."""
    text = path.read_text(encoding="utf-8")
    steps: list[Step] = []
    not_run: list[tuple[Step, str]] = []
    for fence in _FENCE.finditer(text):
        language, body = fence[1], fence[2]
        before, line = text[: fence.start()], text.count("\n", 0, fence.start()) + 2
        mark = _MARK.search(before)
        if language == "output":
            steps[-1] = replace(steps[-1], output=body)
        elif (file := _FILE.search(before)) or language in RUN:
            step = Step(line, language, body) if file is None else Step(line, "file", body, file=file[1])
            found = _commands(line, body) if language == "console" else [step]
            if _VARIES.search(before):
                found = [replace(step, tolerance=0.25) for step in found]
            if mark:
                not_run += [(step, mark[1]) for step in found]
            else:
                steps += found
    wanted = _INPUTS.search(text)
    return Page(path, tuple(steps), tuple(not_run), tuple(wanted[1].split(", ")) if wanted else ())


def _commands(line: int, body: str) -> list[Step]:
    """Return the commands of a session in a terminal: `$ command`, then its output if it is shown."""
    steps = []
    for block in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        command = block[1].replace("\\\n", " ")
        steps.append(Step(line + body.count("\n", 0, block.start()), "console", command, block[2].strip("\n") or None))
    if not steps or not body.startswith("$ "):
        raise ValueError(f"line {line}: a console block begins with '$ command'")
    return steps


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")


def differs(shown: str, actual: str, tolerance: float = 0.05) -> str | None:
    """Return how output differs from what a page shows, or None.

    A line `...` stands for any lines, and `...` in a line for any text. Decimals may be off by a share `tolerance`, or by
    0.05, because processors round differently and trainings with them. Integers must be equal up to a tolerance of 0.05,
    and have the larger tolerance otherwise. Spaces do not count.
    """
    pattern, numbers = "", []
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
            continue
        for word in re.split(r"(\.\.\.|\s+|\d[\d,]*(?:\.\d+)?|(?<![\d.])\.\d+)", line.strip()):
            if word == "...":
                pattern += ".*?"
            elif _NUMBER.fullmatch(word):
                numbers.append(word)
                pattern += f"({_NUMBER.pattern})"
            else:
                pattern += r"\s+" if word.isspace() else re.escape(word)
        pattern += r"\s*\n"
    text = "".join(f"{line.strip()}\n" for line in actual.strip().splitlines() if line.strip())
    match = re.fullmatch(pattern, text)
    if match is None:
        return "the text is another"
    for expected, found in zip(numbers, match.groups(), strict=True):
        if not _close(expected, found, tolerance):
            return f"it shows {expected}, and {found} came"
    return None


def _close(expected: str, found: str, tolerance: float) -> bool:
    if "." not in expected and tolerance <= 0.05:
        return expected == found
    first, second = float(expected.replace(",", "")), float(found.replace(",", ""))
    return abs(first - second) <= max(0.05, tolerance * abs(first))
