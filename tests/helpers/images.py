"""Small images for tests, as arrays and as folders of files."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from proxyhash.data.decoding import Pixels

SIDE = 16
NOISE = 25


def smooth_image(seed: int, width: int = 12, height: int = 12) -> Pixels:
    """Return random smooth pixels (height, width, 3); no two seeds give the same."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def write_images(root: Path, names: Iterable[str], first_seed: int = 0) -> None:
    """Write one smooth image to each of these files."""
    for seed, name in enumerate(names, first_seed):
        save_image(smooth_image(seed), root / name)


def save_image(pixels: np.ndarray, path: Path) -> None:
    """Write pixels (height, width, 3) to a file and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def class_image(label: int, number: int, *, palette: int = 100) -> Image.Image:
    """Return an image of a class: the 4 x 4 colors of the class, and noise. A small network tells classes apart."""
    colors = np.random.default_rng(palette + label).integers(0, 256, (4, 4, 3))
    noise = np.random.default_rng([label, number]).normal(0, NOISE, (SIDE, SIDE, 3))
    pixels = np.kron(colors, np.ones((SIDE // 4, SIDE // 4, 1))) + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_class_folders(root: Path, sizes: dict[str, int]) -> Path:
    """Write a folder of images for each class; images of the class "" lie in the root."""
    for label, (name, size) in enumerate(sizes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(size):
            class_image(label, number).save(root / name / f"{label}-{number}.png")
    return root


def write_tagged_folder(root: Path, images: int) -> Path:
    """Write images with one or two of five tags and a metadata.csv; the last four have none."""
    root.mkdir(parents=True)
    lines = ["file_name,tags"]
    for number in range(images):
        label = number % 4
        class_image(label, number).save(root / f"{number}.png")
        tags = ["sky", "sea", "tree", "town"][label] + (";day" if number % 2 else "")
        lines.append(f"{number}.png,{tags if number < images - 4 else ''}")
    (root / "metadata.csv").write_text("\n".join(lines))
    return root
