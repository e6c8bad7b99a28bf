"""Radii for near duplicates among photographs: chosen on one half of them, tested on the other.

python benchmarks/duplicate_photos.py --model MODEL --photos FOLDER
    re-encodes, scales and crops 250 photographs of each half of a folder, and measures precision and recall of the pairs
    that are near by codes and refinements. MODEL encodes images, such as one of: proxyhash train FOLDER --bits 64 -o MODEL

Photographs whose names differ in the last three digits only are in the same half: in Corel-5K these are the 100 of one CD,
many of them of one scene. A refinement is fitted on the photographs of a half, as in an index of them.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash import Hasher
from proxyhash.codes.bits import to_words
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import FileImages
from proxyhash.data.load import load_dataset
from proxyhash.index.duplicates.compared import DEFAULT_BITS, DEFAULT_STEPS
from proxyhash.index.refinement.fitting import fit_refiner
from proxyhash.index.refinement.refiner import Kind
from proxyhash.models.feature_cache import cached_features
from reporting import Row, options_of, run

COPIED = 250  # photographs of each half
CODE_RADIUS = 8
MIN_PRECISION = 0.99
RADII: dict[Kind, range] = {"code": range(1, 13), "code256": range(2, 26, 2), "int8": range(20, 75, 5)}
DEFAULTS: dict[Kind, int] = {"code": DEFAULT_BITS[128], "code256": DEFAULT_BITS[256], "int8": DEFAULT_STEPS}

Copy = Callable[[Image.Image], tuple[Image.Image, int]]


@dataclass(frozen=True)
class Measurement:
    """Precision of the pairs that are near, and for each kind of copy the share that is near its photograph."""

    precision: float
    recall: NDArray[np.float64]

    def row(self, name: str, *, tested: bool = False) -> Row:
        """Return the row of a report; the precision has a target if the radius was chosen on other photographs."""
        shares = ", ".join(f"{kind} {share:.2f}" for kind, share in zip(COPIES, self.recall, strict=True))
        note = f"recall {self.recall.mean():.3f}: {shares}"
        target = f"at least {MIN_PRECISION}" if tested else ""
        return Row(
            f"{name}: precision", self.precision, target, not tested or self.precision >= MIN_PRECISION, 0.0, note=note
        )


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
    """Choose the radius of each refinement on the first half, and test it on the second."""
    hasher, photos = Hasher.load(options.model), load_dataset(options.photos)
    first, second = halves([photos.images.key(index) for index in range(len(photos))])
    measured = measure(hasher, photos, first)
    chosen: dict[Kind, int] = {}
    for kind, radii in RADII.items():
        chosen[kind] = choose({radius: measured[f"{kind} within {radius}"] for radius in radii})
        yield from (measured[f"{kind} within {radius}"].row(f"first half, {kind} within {radius}") for radius in radii)
    for kind, radius in chosen.items():
        name, default = f"radius of {kind} that the first half chooses", DEFAULTS[kind]
        yield Row(name, radius, f"the default, {default}", radius == default, 0.0)
    measured = measure(hasher, photos, second)
    for kind, radii in RADII.items():
        for radius in radii:
            name = f"{kind} within {radius}"
            yield measured[name].row(f"second half, {name}", tested=radius == chosen[kind])
    yield measured["codes alone"].row("second half, codes alone")


def halves(names: Sequence[str]) -> list[NDArray[np.int64]]:
    """Return two halves of photographs; those whose names differ in the last three digits only stay together."""
    series = np.array([Path(name).stem[:-3] for name in names])
    groups = np.unique(series)
    in_first = np.isin(series, np.random.default_rng(0).permutation(groups)[: len(groups) // 2])
    return [np.flatnonzero(in_first), np.flatnonzero(~in_first)]


def choose(measured: dict[int, Measurement]) -> int:
    """Return the largest radius up to which the precision is high enough, or the smallest radius that was measured."""
    precise = list(takewhile(lambda radius: measured[radius].precision >= MIN_PRECISION, sorted(measured)))
    return precise[-1] if precise else min(measured)


def measure(hasher: Hasher, photos: Dataset, half: NDArray[np.int64]) -> dict[str, Measurement]:
    """Return the measurements of photographs and their copies, for codes alone and for each radius of a refinement."""
    copied = np.sort(np.random.default_rng(0).choice(len(half), COPIED, replace=False))
    network = hasher.network.features.backbone, hasher.transform
    with tempfile.TemporaryDirectory() as folder:
        copies = Dataset("copies", write_copies(photos.subset(half[copied]), Path(folder)))
        of_copies = np.array(cached_features(copies, *network, folder=Path(folder) / "cache").values)
    features = np.concatenate([cached_features(photos, *network).values[half], of_copies])
    source = np.r_[np.arange(len(half)), np.repeat(copied, len(COPIES))]
    near_codes = _hamming(hasher.head.encode(hasher.head_forward(features))) <= CODE_RADIUS
    measured = {"codes alone": _measure_pairs(near_codes, source, len(half))}
    for kind, radii in RADII.items():
        rows = fit_refiner(features[: len(half)], kind).encode(features)
        distances = _euclidean(rows) if kind == "int8" else _hamming(rows.view(np.uint8))
        for radius in radii:
            near = (distances <= radius) & near_codes
            measured[f"{kind} within {radius}"] = _measure_pairs(near, source, len(half))
    return measured


def write_copies(photos: Dataset, folder: Path) -> FileImages:
    """Write the copies of photographs, and return them: all kinds of the first one, then those of the next."""
    names = []
    for index in range(len(photos)):
        image = Image.fromarray(photos.images.read(index))
        for kind, make in enumerate(COPIES.values()):
            copy, quality = make(image)
            names.append(f"{index}-{kind}.jpg")
            copy.save(folder / names[-1], "JPEG", quality=quality)
    return FileImages(folder, names)


def _measure_pairs(near: NDArray[np.bool_], source: NDArray[np.int64], photos: int) -> Measurement:
    found = np.triu(near, 1)
    same = source[:, None] == source
    copies = np.arange(photos, len(source))
    recall = near[source[copies], copies].reshape(-1, len(COPIES)).mean(0)
    return Measurement(float((found & same).sum() / found.sum()), recall)


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
