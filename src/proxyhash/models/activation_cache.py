"""Cache of the activations below the upper stages of a backbone on disk, for partial fine-tuning."""

import hashlib
import logging
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.data.dataset import Dataset
from proxyhash.data.transforms import Transform, draw_augment_params
from proxyhash.models.backbones.base import Backbone, BackboneConfig
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.models.device import module_device
from proxyhash.models.extraction import cache_folder, clear_if_changed, describe_pixels, fastest_backend, hash_network
from proxyhash.models.network import Normalization
from proxyhash.models.row_cache import CachedRows, DamagedCacheError, RowCache
from proxyhash.models.runtime import InferenceBackend
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.text import format_bytes

FORMAT = 1
CROP_SEED = 0  # of the random crops: they are a part of the cache, not of a run
LOGGER = logging.getLogger("proxyhash.models.activation_cache")


@dataclass(frozen=True)
class CachedActivations:
    """Activations of all images in half precision, and which images could be read (N,).

    `crops` has one array for each version of the images, mapped from a file: (N, H, W, C) for maps, whose channels are last
    as convolutions on a CPU prefer them, and (N, ...) for others. The first is that of the evaluation.
    """

    crops: tuple[NDArray[np.float16], ...]
    readable: NDArray[np.bool_]


class LowerStages(nn.Module):
    """Normalization and the lower stages of a backbone, with the channels of maps last in the output."""

    def __init__(self, config: BackboneConfig, lower: nn.Module) -> None:
        super().__init__()
        self.normalize = Normalization(config)
        self.lower = lower

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the activations of pixels (N, 3, H, W) from 0 to 255."""
        outputs: Tensor = self.lower(self.normalize(pixels))
        return outputs.permute(0, 2, 3, 1) if outputs.ndim == 4 else outputs


def cached_activations(
    dataset: Dataset,
    backbone: Backbone,
    transform: Transform,
    upper: int,
    *,
    crops: int = 1,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> CachedActivations:
    """Return the activations below the `upper` last stages for all images of a data set, from the cache if possible.

    The key of an entry is a hash of the lower stages' weights, the images and the transform. The size is logged before
    anything is written. An interrupted extraction is resumed, and damaged entries are computed again.

    Parameters
    ----------
    dataset
        The images.
    backbone
        The network, in evaluation mode.
    transform
        The preparation of images.
    upper
        The number of upper stages, which do not run.
    crops
        Versions of each image: 1 for that of the evaluation, more for random crops beside it.
    folder
        Where entries are; None for the user's cache.
    progress
        Called with the name of the work and the fraction that is done.

    Raises
    ------
    InputError
        If the backbone has no such stages, or the disk is short of space.
    """
    lower, _ = split_stages(backbone, upper)
    network = LowerStages(backbone.config, lower).eval().to(module_device(backbone))
    shape = (len(dataset), *_output_shape(network, transform.size))
    fingerprint = dataset.images.fingerprint()
    folder = folder or cache_folder("activations", fingerprint)
    name = f"{dataset.name}-{backbone.config.name.replace('/', '-')}-{transform.size}-upper{upper}"
    keys = [_key(fingerprint, backbone, lower, transform, upper, crop)[:16] for crop in range(crops)]
    entries = [RowCache(folder / f"{name}-{key}", "activations", shape, "float16") for key in keys]
    if isinstance(backbone, WrappedBackbone):
        for rows in entries:
            clear_if_changed(rows, network, transform.size)
    found = [_find(rows) for rows in entries]
    missing = [rows for rows, values in zip(entries, found, strict=True) if values is None]
    if missing:
        _check_disk(missing, folder)
        backend = fastest_backend(network, transform.size, "activations")
        for crop, rows in enumerate(entries):
            if rows in missing:
                _fill(rows, dataset, backend, transform, crop, progress)
                found[crop] = rows.read()
    cached = [rows for rows in found if rows is not None]
    return CachedActivations(tuple(each.values for each in cached), np.all([each.readable for each in cached], axis=0))


@torch.inference_mode()
def _output_shape(network: LowerStages, image_size: int) -> tuple[int, ...]:
    pixels = torch.zeros(1, 3, image_size, image_size, device=module_device(network))
    return tuple(network(pixels).shape[1:])


def _find(rows: RowCache) -> CachedRows | None:
    """Return the rows of a complete entry, None for another; a damaged one is emptied."""
    if not rows.is_complete():
        return None
    try:
        return rows.read()
    except DamagedCacheError:
        warnings.warn(f"The cached activations in {rows.entry} are damaged; they are computed again.", ProxyhashWarning, 4)
        rows.clear()
        return None


def _check_disk(missing: list[RowCache], folder: Path) -> None:
    """Log how much is going to be written, and raise unless the disk has that much space."""
    needed = sum(rows.num_bytes - rows.num_bytes_written() for rows in missing)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    images, versions = missing[0].shape[0], f", {len(missing)} versions of each" if len(missing) > 1 else ""
    what = f"Activations of {images:,} images{versions}"
    if needed > free:
        raise InputError(
            f"{what} take {format_bytes(needed)} in {folder}, and {format_bytes(free)} are free: "
            "free some (proxyhash cache), set PROXYHASH_CACHE to a folder on another disk, or train fewer stages."
        )
    announced = "%s take %s in %s, where %s are free."
    LOGGER.info(announced, what, format_bytes(needed), folder, format_bytes(free))


def _fill(
    rows: RowCache, dataset: Dataset, backend: InferenceBackend, transform: Transform, crop: int, progress: Progress
) -> None:
    """Compute the activations of one version of the images: that of the evaluation, or random crops without flips."""
    draws = None
    if crop:
        draws = draw_augment_params(len(dataset), CROP_SEED, crop)
        draws[:, 0] = 1.0  # no flip: training flips the maps
    work = f"caching activations: {format_bytes(rows.num_bytes)}" + (f", crop {crop + 1}" if crop else "")
    rows.fill(dataset, backend, transform, work, progress, draws)


def _key(fingerprint: str, backbone: Backbone, lower: nn.Module, transform: Transform, upper: int, crop: int) -> str:
    pixels = (*describe_pixels(transform), *((transform.crop, crop) if crop else ()))
    digest = hashlib.sha256(f"activations/{FORMAT};{fingerprint};{pixels};{upper};".encode())
    hash_network(backbone, lower, digest)
    return digest.hexdigest()


def to_inputs(activations: NDArray[np.float16]) -> Tensor:
    """Return activations (n, ...) in the layout of the cache as an input of the upper stages."""
    values = torch.from_numpy(activations).float()
    return values.permute(0, 3, 1, 2) if values.ndim == 4 else values
