"""The wheel works in an environment of its own, without the repository."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
JOURNEY = (
    "data write digits digits/ --enlarge 2",
    "train digits/ --backbone convnet --bits 16 --epochs 2 -o model",
    "encode model digits/7 -o codes.npz",
    "index add digits/ --model model --index digits.index",
    "reproduce --list",
    "benchmark --dataset digits --backbone convnet --methods lsh,itq --bits 16 -o results",
    "report results -o report.html",
)


def run(command: Sequence[str], place: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "PROXYHASH_CACHE": str(place / "cache")}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed(place: Path, extras: str) -> Path:
    """Build the wheel, install it into a new environment, and return the folder of its commands."""
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(PROJECT)], place)
    (wheel,) = place.glob("proxyhash-*.whl")
    venv.create(place / "env", with_pip=True)
    commands = place / "env" / ("Scripts" if os.name == "nt" else "bin")
    pins = str(PROJECT / "constraints.txt")
    run([str(commands / "pip"), "install", "--quiet", "--constraint", pins, f"{wheel}{extras}"], place)
    return commands


@pytest.mark.slow
def test_the_core_designs_and_measures_without_torch(tmp_path: Path) -> None:
    commands = installed(tmp_path, "")
    listed = json.loads(run([str(commands / "pip"), "list", "--format", "json"], tmp_path))
    assert "torch" not in {package["name"] for package in listed}
    out = run([str(commands / "proxyhash"), "proxies", "--classes", "10", "--bits", "16", "--json"], tmp_path)
    assert json.loads(out)["quality"]["min_distance"] >= 5
    out = run([str(commands / "proxyhash"), "doctor"], tmp_path)
    assert "pip install 'proxyhash[train]'" in out


@pytest.mark.slow
def test_everything_trains_encodes_and_searches(tmp_path: Path) -> None:
    commands = installed(tmp_path, "[all]")
    for line in JOURNEY:
        run([str(commands / "proxyhash"), *line.split()], tmp_path)
    query = "digits/3/digits-000003.png"
    (found,) = json.loads(run([str(commands / "proxyhash"), "search", "digits.index", query, "--json"], tmp_path))
    assert len(found["matches"]) == 10
