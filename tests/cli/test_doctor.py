"""What the doctor finds, and what to type for what is not there."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from proxyhash.cli import health
from proxyhash.cli.app import main

REQUIRES = [
    "numpy>=2.0",
    "torch>=2.6; extra == 'train'",
    'nosuchpackage>=1; extra == "future"',
    "pillow; extra == 'future'",
    "proxyhash[train]; extra == 'all'",
]


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["doctor", "--json"])
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_facts_for_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache" / "features" / "a").mkdir(parents=True)
    (tmp_path / "cache" / "features" / "a" / "features.npy").write_bytes(b"0" * 1234)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    facts = doctor(capsys)
    assert facts["versions"]["torch"].startswith("2.")
    assert facts["devices"][0] == "cpu"
    assert facts["threads"]["cores"] >= 1
    assert facts["threads"]["OMP_NUM_THREADS"] == "1"
    assert facts["caches"]["folder"] == str(tmp_path / "cache")
    assert facts["caches"]["bytes"]["features"] == 1234
    assert all(free > 0 for free in facts["disk"].values())


def test_parts_say_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {part["name"]: part for part in doctor(capsys)["parts"]}
    assert set(parts) == {"train", "future"}  # `all` only gathers others
    assert parts["train"]["advice"] is None
    assert parts["future"]["missing"] == ["nosuchpackage"]
    assert list(parts["future"]["installed"]) == ["pillow"]
    assert parts["future"]["advice"] == "pip install 'proxyhash[future]'"


def test_words_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "free_bytes", lambda _: 1 << 30)
    monkeypatch.setattr(health, "private_cache_folder", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")
    main(["doctor"])
    out = capsys.readouterr().out
    assert "not installed: pip install 'proxyhash[future]'" in out
    assert "networks: training and encoding" in out
    assert "has 1.0 GiB left: make room" in out
    assert "set PROXYHASH_CACHE to a folder of your own" in out
    assert "\x1b[" not in out  # no colors: this is no terminal


def test_every_part_says_what_it_is_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(health.PURPOSES) == set(project["optional-dependencies"]) - {"all", "dev"}


def test_it_needs_nothing_that_is_optional() -> None:
    code = "import sys, proxyhash.cli.health; print('torch' in sys.modules, 'onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
