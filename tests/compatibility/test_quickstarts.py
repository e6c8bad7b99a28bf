import json
import shutil
from pathlib import Path

import pytest

from helpers.release_0_1 import FILES, run_command


def test_finished_quickstart_is_not_run_again(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "quick"
    shutil.copytree(FILES / "quickstart", output)
    shutil.copytree(FILES / "model", output / "model")
    for name in ("index", "results"):
        (output / name).mkdir()
    (output / "report.html").write_text("")
    before = (output / "quickstart.json").read_bytes()
    shutil.copytree(photos, tmp_path / "photos", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path)
    result = run_command("quickstart", "photos", "--bits", 8, "--backbone", "convnet", "--epochs", 2, "-o", "quick")
    assert (output / "quickstart.json").read_bytes() == before
    assert result["metrics"]["map"] == json.loads(before)["steps"]["measuring"]["answer"]["map"]
