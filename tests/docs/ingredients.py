"""What pages take for granted, made small: a folder of photographs, a model trained on it, its codes."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from proxyhash.cli.app import main

SIDE, IMAGES = 16, 12
CLASSES = ("boats", "cats", "dogs")


def prepare(names: Sequence[str]) -> None:
    """Make what a page names, in the current folder."""
    for name in names:
        _MAKERS[name]()


def _picture(kind: int, number: int) -> Image.Image:
    """Return coarse colors of a class, and noise."""
    colors = np.random.default_rng(kind).integers(0, 256, (4, 4, 3))
    noise = np.random.default_rng([kind, number]).normal(0, 25, (SIDE, SIDE, 3))
    pixels = np.kron(colors, np.ones((SIDE // 4, SIDE // 4, 1))) + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _photos(folder: str, first: int) -> Callable[[], None]:
    def make() -> None:
        for kind, name in enumerate(CLASSES):
            Path(folder, name).mkdir(parents=True)
            for number in range(first, first + IMAGES):
                _picture(kind, number).save(Path(folder, name, f"{number}.jpg"))

    return make


def _model(name: str, seed: int) -> Callable[[], None]:
    def make() -> None:
        small = "--backbone convnet --image-size 16 --bits 32 --epochs 4 --hidden-dim 32"
        main(f"train photos/ {small} --seed {seed} -o {name}".split())
        shutil.rmtree(f"{name}.run")

    return make


def _command(line: str) -> Callable[[], None]:
    return lambda: main(line.split())


_MAKERS: dict[str, Callable[[], None]] = {
    "photos": _photos("photos", 0),
    "more-photos": _photos("more-photos", 100),
    "query.jpg": lambda: _picture(1, 50).save("query.jpg"),
    "model": _model("model", 0),
    "better": _model("better", 1),
    "photos.index": _command("index add photos/ --model model --index photos.index"),
    "codes.npz": _command("encode model photos/ -o codes.npz"),
    "shards": _command("encode model photos/ --shards shards/"),
}
