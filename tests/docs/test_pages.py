"""The pages: their picture is what they say, their links lead somewhere, nothing is left out, and the site builds."""

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import proxyhash

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_of_the_idea_is_what_the_page_says(tmp_path: Path) -> None:
    draw = runpy.run_path(str(DOCS / "figures" / "rotation.py"))["draw"]
    (loss, found), (turned_loss, turned_found) = draw(tmp_path / "rotation.png").values()
    assert loss == pytest.approx(turned_loss, abs=1e-12)
    assert (tmp_path / "rotation.png").stat().st_size > 10_000
    page = (DOCS / "idea.md").read_text(encoding="utf-8")
    for number in (f"{loss:.3f}", f"mAP {found:.2f}", f"to {turned_found:.2f}"):
        assert number in page


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference.html").read_text(encoding="utf-8")
    names = {name for name in proxyhash.__all__ if not inspect.ismodule(getattr(proxyhash, name))}
    for name in names | {f"losses.{name}" for name in proxyhash.losses.__all__}:
        assert re.search(rf'id="proxyhash\.([a-z_.]+\.)?{name}"', reference), f"the reference leaves out {name}"


def test_the_page_on_the_design_names_every_folder() -> None:
    folders = {path.parent.name for path in (DOCS.parent / "src" / "proxyhash").glob("*/__init__.py")}
    named = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "design.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert folders <= named
