"""Difference between the activations of a mirrored image and the mirrored activations of the image.

python benchmarks/mirrored_activations.py --cifar100 DATA/cifar-100-python --photos FOLDER   half a minute on two cores
python benchmarks/mirrored_activations.py                                                    with digits instead

Partial fine-tuning mirrors cached activations instead of images. The two are not the same: filters are not symmetric, and a
convolution with a stride of two pads an image of even width on one side only. Features and codes are those of the pretrained
EfficientNet-Lite0, whose upper stages get either activations; codes are by ITQ on the features of the same images. The notes
compare with the difference between an image and its mirror image.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data import Dataset, load_dataset
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import default_transform
from proxyhash.methods import TrainingData
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.network import Normalization
from proxyhash.training.features import fit_method
from reporting import Row, options_of, run

BACKBONE, UPPER, SIZE = "efficientnet_lite0", 5, 224
COUNT, BATCH, BITS = 384, 32, 64

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Features:
    """Features (n, width) of images, of mirrored images, and of images whose activations are mirrored."""

    images: Floats
    mirrored_images: Floats
    mirrored_activations: Floats


@dataclass(frozen=True)
class Differences:
    """Differences of mirrored activations (n,): L2 relative to the activations of the mirrored image, and the cosine.

    `plain_errors` are the relative differences of activations that are not mirrored.
    """

    errors: Floats
    cosines: Floats
    plain_errors: Floats


@torch.inference_mode()
def compare(dataset: Dataset) -> tuple[Features, Differences]:
    """Run the lower and the upper stages for some images, spread over the data set."""
    backbone = create_backbone(BACKBONE).eval()
    lower, upper = split_stages(backbone, UPPER)
    normalize = Normalization(backbone.config)
    chosen = np.linspace(0, len(dataset) - 1, min(COUNT, len(dataset))).astype(np.int64)
    features: list[list[Tensor]] = []
    differences: list[list[Tensor]] = []
    batches = np.array_split(chosen, -(-len(chosen) // BATCH))
    for batch in load_batches(dataset.images, batches, default_transform(dataset, SIZE)):
        pixels = normalize(torch.from_numpy(batch.images))
        plain, wanted = lower(pixels), lower(pixels.flip(3))
        mirrored = plain.flip(3)
        features.append([upper(each) for each in (plain, wanted, mirrored)])
        cosines = torch.nn.functional.cosine_similarity(mirrored.flatten(1), wanted.flatten(1))
        differences.append([_relative(mirrored, wanted), cosines, _relative(plain, wanted)])
    return Features(*_joined(features)), Differences(*_joined(differences))


def _relative(found: Tensor, wanted: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm
    errors: Tensor = norm((found - wanted).flatten(1), dim=1) / norm(wanted.flatten(1), dim=1)
    return errors


def _joined(batches: list[list[Tensor]]) -> list[Floats]:
    return [torch.cat(column).numpy() for column in zip(*batches, strict=True)]


def rows_of(dataset: Dataset) -> Iterator[Row]:
    begin = time.perf_counter()
    features, differences = compare(dataset)
    seconds = time.perf_counter() - begin
    name = f"{len(features.images)} images of {dataset.name}"
    errors, cosines = differences.errors, differences.cosines
    note = f"{differences.plain_errors.mean():.3f} if they are not mirrored"
    yield Row(f"{name}: relative L2 error of mirrored activations", float(errors.mean()), "", True, seconds, note=note)
    note = f"least {cosines.min():.4f}"
    yield Row("... cosine of activations", float(cosines.mean()), "", True, seconds, note=note)
    cosine = _cosines(features.mirrored_activations, features.mirrored_images)
    mirrored = _cosines(features.images, features.mirrored_images)
    note = f"least {cosine.min():.4f}; {mirrored.mean():.4f} of an image and its mirror image"
    yield Row("... cosine of features", float(cosine.mean()), "", True, seconds, note=note)
    share, image_share = _differing_bits(features)
    note = f"{image_share:.2f} % between an image and its mirror image; ITQ, {BITS} bits"
    yield Row("... % of bits that differ", share, "", True, seconds, note=note)


def _cosines(first: Floats, second: Floats) -> Floats:
    cosines: Floats = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return cosines


def _differing_bits(features: Features) -> tuple[float, float]:
    """Return the percentage of bits that differ from those of mirrored images: by mirrored activations, and by images."""
    encoder = fit_method("itq", TrainingData(BITS, features.images))
    images, wanted, found = (
        encoder.embed(each) >= 0 for each in (features.images, features.mirrored_images, features.mirrored_activations)
    )
    return 100 * float((found != wanted).mean()), 100 * float((images != wanted).mean())


def datasets_of(options: argparse.Namespace) -> list[Dataset]:
    """Return the data sets of the options, or digits without any."""
    found = []
    if options.cifar100 is not None:
        found.append(load_dataset("cifar100", data_dir=Path(options.cifar100).parent, fetch=False))
    if options.photos is not None:
        found.append(load_dataset(Path(options.photos)))
    return found or [load_dataset("digits")]


def main() -> None:
    paths = {"cifar100": "the folder cifar-100-python", "photos": "a folder of photographs"}
    options = options_of(__doc__, ["mirrored"], paths)
    datasets = datasets_of(options)
    sections = {"mirrored": partial(_all_rows, datasets)}
    run(f"Mirrored activations of {BACKBONE} below its upper {UPPER} stages, {SIZE} pixels", sections, options)


def _all_rows(datasets: list[Dataset]) -> Iterator[Row]:
    for dataset in datasets:
        yield from rows_of(dataset)


if __name__ == "__main__":
    main()
