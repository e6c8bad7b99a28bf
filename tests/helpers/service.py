"""A real service in a process of its own, on a free port of this machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from helpers.images import save_image
from proxyhash.index import Calibration
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.model_store import model_dir

TOKEN = "correct-horse-battery-staple"
NASTY = "<img src=x onerror=alert(1)>"

SCRIPT = """
import json, sys
from proxyhash.serve.server import ServerConfig, serve
from proxyhash.serve.settings import Limits, Settings
settings, config, limits = json.loads(sys.argv[2])
settings = {name: frozenset(value) if isinstance(value, list) else value for name, value in settings.items()}
serve(
    sys.argv[1],
    Settings(**settings, limits=Limits(**limits)),
    ServerConfig(port=0, **config),
    lambda url: print(url, flush=True),
)
"""


@dataclass(frozen=True)
class RunningService:
    """A service in a process of its own."""

    url: str
    index: Path
    log: Path
    process: "subprocess.Popen[str]"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, verify=False, **options)

    def writer(self) -> httpx.Client:
        return self.client(headers={"Authorization": f"Bearer {TOKEN}"})

    def log_lines(self, containing: str = "") -> list[dict[str, Any]]:
        """Return the log, once it contains a text: a request is logged after its response was sent."""
        deadline = time.monotonic() + 10
        while containing not in self.log.read_text(encoding="utf-8") and time.monotonic() < deadline:
            time.sleep(0.05)
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


@contextmanager
def serving(
    index: Path | str,
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    log: Path | None = None,
    **limits: float,
) -> Iterator[RunningService]:
    """Serve an index until the block ends; the service must then end by itself."""
    log = Path(index).with_suffix(".log") if log is None else log
    arguments = [{"token": TOKEN, **(settings or {})}, config or {}, limits]
    command = [sys.executable, "-c", SCRIPT, str(index), json.dumps(arguments)]
    with log.open("w", encoding="utf-8") as lines:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True, env=os.environ.copy())
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url, log.read_text(encoding="utf-8")
        wait_until_ready(url)
        yield RunningService(url, Path(index), log, process)
        if process.poll() is None:
            process.terminate()
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until_ready(url: str) -> None:
    with httpx.Client(verify=False, timeout=60) as client:
        for _ in range(2400):
            with suppress(httpx.ConnectError):  # several workers listen a moment after the URL is known
                if client.get(f"{url}/ready").status_code == 200:
                    return
            time.sleep(0.05)
    raise AssertionError("The service never became ready.")


def make_photo_index(folder: Path, model: Path) -> Path:
    """Index pictures of two classes and one with a nasty name; only equal codes are matches."""
    random = np.random.default_rng(0)
    for number in range(12):
        save_image(random.integers(0, 256, (20, 30, 3)), folder / "photos" / "cd"[number % 2] / f"{number}.png")
    save_image(random.integers(0, 256, (20, 30, 3)), folder / "photos" / NASTY / f"{NASTY}.png")
    from proxyhash.data import SkippedItems

    with LocalIndex.open_folder(folder / "i", model=model) as index:
        add_folder(index, folder / "photos", SkippedItems())
        precision = np.where(np.arange(33) == 0, 1.0, 0.2)
        Calibration(precision, np.ones(33, np.int64)).save(model_dir(index.folder, str(index.model)))
    return folder / "i"


def make_column_index(folder: Path, model: Path) -> Path:
    """Index 24 pictures, the even and the odd, with columns of all types; the last one has none of them."""
    from proxyhash.data import SkippedItems

    random, lines = np.random.default_rng(0), ["file_name,label,year,taken,title,odd name"]
    for number in range(24):
        name, label = f"{number:02}.png", ("even", "odd")[number % 2]
        save_image(random.integers(0, 256, (20, 30, 3)), folder / "photos" / name)
        taken, rare = f"2020-01-{number + 1:02}" if number < 20 else "", number if number < 2 else ""
        title = NASTY if number == 3 else f"Title {number}"
        values = f"{2000 + number},{taken},{title},{rare}" if number < 23 else ",,,"
        lines.append(f"{name},{label},{values}")
    (folder / "photos" / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    with LocalIndex.open_folder(folder / "i", model=model) as index:
        add_folder(index, folder / "photos", SkippedItems())
    return folder / "i"


def make_code_index(folder: Path, count: int = 500, bits: int = 16) -> Path:
    """Index random codes of two labels, the odd and the even."""
    with LocalIndex.open_folder(folder, bits=bits) as index:
        codes = np.random.default_rng(1).integers(0, 256, (count, bits // 8), dtype=np.uint8)
        index.add(
            codes, [f"item {number}" for number in range(count)], [("even", "odd")[number % 2] for number in range(count)]
        )
    return folder
