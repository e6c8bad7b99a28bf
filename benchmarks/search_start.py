"""Time that `proxyhash search INDEX image.jpg` takes from start to end, for an index of 100,000 images.

python benchmarks/search_start.py                everything: about two minutes
python benchmarks/search_start.py --model MODEL  another model than EfficientNet-Lite0 with a head of random weights

The yardstick is a bare process that imports numba and onnxruntime and creates the session. Both run in alternation, each in
a process of its own, and the shortest time of each counts. The codes of the index are near 100 centers, as those of a
trained model are, so that they are stored in clusters.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from proxyhash.index.base import Index
from reporting import Row, options_of, run

ITEMS, BITS, CENTERS, MAX_FLIPS = 100_000, 64, 100, 6
TURNS = 20
LIMIT = 0.5  # seconds beyond the bare process
BARE = """
import sys
import numba, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""
SEARCH = "from proxyhash.cli.app import main; main()"
MODULES = "import json, sys; from proxyhash.cli.app import main; main(); json.dump(sorted(sys.modules), sys.stderr)"


def make_model(folder: Path) -> Path:
    """Save EfficientNet-Lite0 with a head of random weights."""
    import torch

    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadConfig

    torch.manual_seed(0)
    backbone = create_backbone("efficientnet_lite0")
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, bits=BITS))).eval()
    Hasher(network, get_transform("photo")).save(folder)
    return folder


def make_index(folder: Path, model: Path) -> None:
    """Store codes near the centers of 100 classes, under the names of images."""
    random = np.random.default_rng(0)
    with Index.open(folder, model=model) as index:
        bits = random.integers(0, 2, (CENTERS, index.bits), dtype=np.uint8)[random.integers(0, CENTERS, ITEMS)]
        for _ in range(MAX_FLIPS):
            bits[np.arange(ITEMS), random.integers(0, index.bits, ITEMS)] ^= 1
        codes = np.packbits(bits, axis=1, bitorder="little")
        index.add(codes, keys=[f"photos/{number:06d}.jpg" for number in range(ITEMS)])


def run_once(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a process."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - begin, os.times()
    work = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, work


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Compare the command with the bare process, in time and in processor time."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or make_model(folder / "model")
        make_index(folder / "index", model)
        noise = np.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(folder / "query.jpg", quality=90)
        # An installed package has compiled bytecode, whatever the variables of this shell are.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PROXYHASH_CACHE": str(folder / "cache")}
        query = ["search", str(folder / "index"), str(folder / "query.jpg")]
        bare, search = ["-c", BARE, str(model / "model.onnx")], ["-c", SEARCH, *query]
        imported = json.loads(
            subprocess.run(
                [sys.executable, "-c", MODULES, *query], env=environment, check=True, capture_output=True, text=True
            ).stderr
        )
        yield Row("search by image: imports of torch", float("torch" in imported), "0", "torch" not in imported, 0.0)
        begin = time.perf_counter()
        turns = [(run_once(bare, environment), run_once(search, environment)) for _ in range(TURNS + 1)][1:]
        total = time.perf_counter() - begin
        for kind, label in ((0, "seconds"), (1, "processor seconds")):
            least, most = (min(turn[command][kind] for turn in turns) for command in (0, 1))
            note = f"best of {TURNS}: search {most:.2f}, bare process {least:.2f}, ratio {most / least:.2f}"
            more = most - least
            yield Row(
                f"search by image: {label} beyond a bare process", more, f"<= {LIMIT}", more <= LIMIT, total, note=note
            )


if __name__ == "__main__":
    chosen = options_of(__doc__, ["search"], {"model": "folder of a model with an ONNX file"})
    run("Start of a search", {"search": lambda: rows(chosen)}, chosen)
