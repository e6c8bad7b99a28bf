"""Small inputs that documentation pages need: a folder of photographs, a model trained on it, its codes."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from helpers.images import class_image
from proxyhash.cli.app import main

IMAGES = 12
CLASSES = ("boats", "cats", "dogs")

_image = partial(class_image, palette=0)


def make_inputs(names: Sequence[str]) -> None:
    """Make the files and folders with these names in the current folder."""
    for name in names:
        _MAKERS[name]()


def _photos(folder: str, first: int) -> Callable[[], None]:
    def make() -> None:
        for label, name in enumerate(CLASSES):
            Path(folder, name).mkdir(parents=True)
            for number in range(first, first + IMAGES):
                _image(label, number).save(Path(folder, name, f"{number}.jpg"))

    return make


def _snapshots() -> None:
    """Make a flat folder of images, without labels."""
    Path("snapshots").mkdir()
    for label, name in enumerate(CLASSES):
        for number in range(IMAGES):
            _image(label, number).save(Path("snapshots", f"{name}-{number}.jpg"))


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
    "snapshots": _snapshots,
    "more-photos": _photos("more-photos", 100),
    "query.jpg": lambda: _image(1, 50).save("query.jpg"),
    "model": _model("model", 0),
    "better": _model("better", 1),
    "photos.index": _command("index add photos/ --model model --index photos.index"),
    "codes.npz": _command("encode model photos/ -o codes.npz"),
    "shards": _command("encode model photos/ --shards shards/"),
}
