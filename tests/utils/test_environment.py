"""Provenance of results."""

import shutil
import subprocess
import sys
from pathlib import Path

from proxyhash.utils import environment


def test_commit_is_that_of_the_sources_and_says_whether_they_changed(tmp_path: Path) -> None:
    def commit_of(folder: Path) -> str:
        code = "from proxyhash.utils.environment import commit; print(commit())"
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True
        ).stdout.strip()

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    package = tmp_path / "src" / "proxyhash"
    (package / "utils").mkdir(parents=True)
    sources = Path(environment.__file__).parents[1]
    for name in ("__init__.py", "environment.py", "parallel.py"):
        shutil.copyfile(sources / "utils" / name, package / "utils" / name)
    (package / "__init__.py").touch()
    assert commit_of(tmp_path / "src") == "None"
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert commit_of(tmp_path / "src") == git("rev-parse", "--short=12", "HEAD")
    (package / "__init__.py").write_text("changed = True\n")
    assert commit_of(tmp_path / "src") == git("rev-parse", "--short=12", "HEAD") + "+"
    shutil.move(tmp_path / "src", tmp_path / "lib")
    assert commit_of(tmp_path / "lib") == "None", "the repository of an environment is not that of the package"


def test_provenance_is_complete() -> None:
    made = environment.provenance()
    assert made["versions"].keys() >= {"python", "proxyhash", "torch", "numpy"}
    assert made["machine"]["processor"]
    assert made["date"].count("-") == 2
