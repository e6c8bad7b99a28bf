"""The pages on the idea and on extending: their code runs, and their numbers are those that it gives."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from proxyhash.support.compiled import private_cache_folder

DOCS = Path(__file__).parents[1] / "docs"


def test_the_picture_of_the_idea_is_what_the_page_says(tmp_path: Path) -> None:
    draw = runpy.run_path(str(DOCS / "figures" / "rotation.py"))["draw"]
    (loss, found), (turned_loss, turned_found) = draw(tmp_path / "rotation.png").values()
    assert loss == pytest.approx(turned_loss, abs=1e-12)
    assert (tmp_path / "rotation.png").stat().st_size > 10_000
    page = (DOCS / "idea.md").read_text(encoding="utf-8")
    for number in (f"{loss:.3f}", f"mAP {found:.2f}", f"to {turned_found:.2f}"):
        assert number in page


def test_the_page_on_extending_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "extending.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.py").write_text("\n\n".join([*blocks, "assert codes.shape == (50, 1)"]), encoding="utf-8")
    compiled = private_cache_folder()
    (tmp_path / "cache").mkdir()
    if compiled is not None:  # compiling everything anew would take longer than the page
        (tmp_path / "cache" / "compiled").symlink_to(compiled)
    environment = {"PYTHONPATH": str(DOCS.parent / "src"), "PROXYHASH_CACHE": str(tmp_path / "cache"), "PATH": ""}
    command = [sys.executable, "-W", "error", "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert float(done.stdout.removeprefix("mAP ")) > 0.9


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (DOCS / target).exists(), f"{page.name} links to {target}"


def test_the_page_on_the_design_names_every_folder() -> None:
    folders = {path.parent.name for path in (DOCS.parent / "src" / "proxyhash").glob("*/__init__.py")}
    named = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "design.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert folders <= named | {"serve"}
