"""Small pictures that a small network tells apart: coarse colors of each class, and noise."""

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 16


def picture(kind: int, number: int) -> Image.Image:
    """Return one picture of a kind."""
    colors = np.random.default_rng(100 + kind).integers(0, 256, (4, 4, 3))
    noise = np.random.default_rng([kind, number]).normal(0, 25, (SIDE, SIDE, 3))
    pixels = np.kron(colors, np.ones((SIDE // 4, SIDE // 4, 1))) + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def class_folders(root: Path, sizes: dict[str, int]) -> Path:
    """Write a folder of pictures for each class; a class without a name lies beside them."""
    for kind, (name, size) in enumerate(sizes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(size):
            picture(kind, number).save(root / name / f"{kind}-{number}.png")
    return root


def tagged(root: Path, images: int) -> Path:
    """Write pictures with one or two of four tags and a metadata.csv; the last four have none."""
    root.mkdir(parents=True)
    lines = ["file_name,tags"]
    for number in range(images):
        kind = number % 4
        picture(kind, number).save(root / f"{number}.png")
        tags = ["sky", "sea", "tree", "town"][kind] + (";day" if number % 2 else "")
        lines.append(f"{number}.png,{tags if number < images - 4 else ''}")
    (root / "metadata.csv").write_text("\n".join(lines))
    return root
