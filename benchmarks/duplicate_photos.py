"""Precision and recall of copies of photographs that are found as near duplicates, by codes and refinements.

python benchmarks/duplicate_photos.py --model MODEL --photos FOLDER
    re-encodes, scales and crops 500 photographs of a folder. MODEL encodes images, such as one of
    proxyhash train FOLDER --bits 64 -o MODEL
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash import Hasher
from proxyhash.codes.bits import to_words
from proxyhash.index.refinement.fitting import fit_refiner
from proxyhash.index.refinement.refiner import Kind
from reporting import Row, options_of, run

COPIED = 500  # photographs
LIMITS: dict[Kind, tuple[int, ...]] = {"code": (2, 4, 10), "code256": (12, 20), "int8": (30, 40, 50, 60)}

Copy = Callable[[Image.Image], tuple[Image.Image, int]]


def scaled(share: float) -> Copy:
    def scale(image: Image.Image) -> tuple[Image.Image, int]:
        return image.resize((round(image.width * share), round(image.height * share)), Image.Resampling.LANCZOS), 90

    return scale


def cropped(share: float) -> Copy:
    def crop(image: Image.Image) -> tuple[Image.Image, int]:
        left, top = int(image.width * share), int(image.height * share)
        return image.crop((left, top, image.width - left, image.height - top)), 90

    return crop


COPIES: dict[str, Copy] = {
    "quality 75": lambda image: (image, 75),
    "quality 30": lambda image: (image, 30),
    "3/4 of the size": scaled(0.75),
    "half the size": scaled(0.5),
    "3 % cropped on each side": cropped(0.03),
    "8 % cropped on each side": cropped(0.08),
}


def photo_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure precision and recall of pairs of a photograph and its copies, by the distance of refinements."""
    hasher, paths = Hasher.load(options.model), sorted(options.photos.rglob("*.jp*g"))
    chosen = np.sort(np.random.default_rng(0).choice(len(paths), COPIED, replace=False))
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / f"{number}-{kind}.jpg" for number in chosen for kind in range(len(COPIES))]
        for path in copies:
            number, kind = map(int, path.stem.split("-"))
            with Image.open(paths[number]) as image:
                copy, quality = list(COPIES.values())[kind](image.convert("RGB"))
            out = BytesIO()
            copy.save(out, "JPEG", quality=quality)
            path.write_bytes(out.getvalue())
        features = hasher.features([*paths, *copies])
    source = np.r_[np.arange(len(paths)), np.repeat(chosen, len(COPIES))]
    near_codes = _hamming(hasher.head.encode(hasher.head_forward(features))) <= 8
    for refinement, limits in LIMITS.items():
        rows = fit_refiner(features[: len(paths)], refinement).encode(features)
        distances = _euclidean(rows) if refinement == "int8" else _hamming(rows.view(np.uint8))
        for limit in limits:
            yield _photo_row(f"{refinement} within {limit}", (distances <= limit) & near_codes, source, len(paths))
    yield _photo_row("codes within 8 alone", near_codes, source, len(paths))


def _photo_row(name: str, near: NDArray[np.bool_], source: NDArray[np.int64], photos: int) -> Row:
    found = np.triu(near, 1)
    same = source[:, None] == source
    precision = float((found & same).sum() / found.sum())
    copies = np.arange(photos, len(source))
    recall = near[source[copies], copies].reshape(-1, len(COPIES)).mean(0)
    shares = ", ".join(f"{kind} {share:.2f}" for kind, share in zip(COPIES, recall, strict=True))
    note = f"recall {recall.mean():.3f}: {shares}"
    return Row(f"copies of photographs, {name}: precision", precision, "", True, 0.0, note=note)


def _hamming(codes: NDArray[np.uint8]) -> NDArray[np.uint16]:
    out = np.zeros((len(codes), len(codes)), np.uint16)
    for word in to_words(codes):
        out += np.bitwise_count(word[:, None] ^ word)
    return out


def _euclidean(rows: NDArray[Any]) -> NDArray[np.float32]:
    values = rows.astype(np.float32)
    squares = np.square(values).sum(1)
    distances: NDArray[np.float32] = np.sqrt(np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0))
    return distances


def main() -> None:
    options = options_of(__doc__, ["photos"], {"model": "folder of a model", "photos": "folder of photographs"})
    run("Copies of photographs", {"photos": lambda: photo_rows(options)}, options)


if __name__ == "__main__":
    main()
