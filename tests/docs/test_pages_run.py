"""Every command and every piece of Python in the README and the docs runs, and prints what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.docs_pages import PROJECT, all_pages, differs, read_page
from proxyhash.utils.jit import private_cache_folder

QUICK = {"01-proxies.md", "02-evaluate-codes.md", "03-train-on-a-folder.md", "data.md", "evaluation.md"}  # for `make test`
REASONS = ("needs a network", "needs a GPU", "needs CIFAR-100", "needs Corel-5K", "needs an idle machine", "CI runs")


def _cases() -> list[object]:
    pages = [path for path in all_pages() if read_page(path).steps]
    return [
        pytest.param(path, id=str(path.relative_to(PROJECT)), marks=[] if path.name in QUICK else [pytest.mark.slow])
        for path in pages
    ]


@pytest.mark.parametrize("path", _cases())
def test_a_person_can_follow_the_page(path: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    compiled = private_cache_folder()
    if compiled is not None:  # compiling everything anew would take longer than the page
        (tmp_path / "cache" / "compiled").symlink_to(compiled)
    (tmp_path / "here").mkdir()
    environment = {
        **os.environ,
        "PROXYHASH_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "tests")]),
    }
    command = [sys.executable, "-W", "error", "-m", "helpers.docs_runner", str(path), str(tmp_path / "here")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_is_not_run_says_why(path: Path) -> None:
    for step, reason in read_page(path).not_run:
        assert reason.startswith(REASONS), f"{path.name}:{step.line} is not run because it {reason}"


@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_commands_stand_in_blocks_that_are_run(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    stray = re.findall(r"^    (?:\$ )?(?:proxyhash|python|pip|make|torchrun|curl|import|from) .*", text, re.MULTILINE)
    assert not stray, "commands stand in ```console and Python in ```python"
    languages = set(re.findall(r"^```(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert languages <= {"console", "python", "toml", "output", "text", "{toctree}"}


def test_shown_output_is_compared() -> None:
    assert differs("mAP  0.80\n...\nSaved a; see b", "mAP 0.83\nx\ny\nSaved a; see b\n") is None
    assert differs("at ... images/s", "at 1,200 images/s") is None
    assert differs("a\n\nb\n...", "a\nb\n\nc\nd\n") is None
    assert differs("12 items", "13 items") == "it shows 12, and 13 came"
    assert differs("12 items", "13 items", tolerance=0.25) is None
    assert differs("12 items", "16 items", tolerance=0.25) == "it shows 12, and 16 came"
    assert differs("mAP 0.80", "mAP 0.90") == "it shows 0.80, and 0.90 came"
    assert differs("mAP 0.80", "mAP 0.80\nand more") == "the text is another"
