"""Diagnostics of the installation, with the commands that install missing extras."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from proxyhash.cli.app import main
from proxyhash.utils import diagnostics

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


def test_json_has_versions_devices_threads_caches_and_disk(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "features" / "a").mkdir(parents=True)
    (tmp_path / "cache" / "features" / "a" / "features.npy").write_bytes(b"0" * 1234)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = doctor(capsys)
    assert found["versions"]["torch"].startswith("2.")
    assert found["devices"][0] == "cpu"
    assert found["threads"]["cores"] >= 1
    assert found["threads"]["OMP_NUM_THREADS"] == "1"
    assert found["caches"]["folder"] == str(tmp_path / "cache")
    assert found["caches"]["bytes"]["features"] == 1234
    assert all(free > 0 for free in found["disk"].values())


def test_extras_name_the_command_that_installs_them(capsys: pytest.CaptureFixture[str]) -> None:
    extras = {extra["name"]: extra for extra in doctor(capsys)["extras"]}
    assert set(extras) == {"train", "future"}  # `all` only lists others
    assert extras["train"]["install_command"] is None
    assert extras["future"]["missing"] == ["nosuchpackage"]
    assert list(extras["future"]["installed"]) == ["pillow"]
    assert extras["future"]["install_command"] == "pip install 'proxyhash[future]'"


def test_table_has_warnings_with_remedies(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "free_bytes", lambda _: 1 << 30)
    monkeypatch.setattr(diagnostics, "private_cache_folder", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")
    main(["doctor"])
    out = capsys.readouterr().out
    assert "not installed: pip install 'proxyhash[future]'" in out
    assert "networks: training and encoding" in out
    assert "has 1.0 GiB left: make room" in out
    assert "set PROXYHASH_CACHE to a folder of your own" in out
    assert "\x1b[" not in out  # no colors without a terminal


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(diagnostics.PURPOSES) == set(project["optional-dependencies"]) - {"all", "dev"}


def test_diagnostics_import_no_optional_package() -> None:
    code = "import sys, proxyhash.utils.diagnostics; print('torch' in sys.modules, 'onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
