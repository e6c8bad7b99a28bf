"""The loop over images that all backends share; this module does not need torch."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import AugmentParams, Transform
from proxyhash.models.onnx_backend import Floats
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

Result = TypeVar("Result")

BATCH_SIZE = 64  # large enough to fill the cores, small enough for their caches


class InferenceBackend(Protocol):
    """Pixels (n, 3, size, size) from 0 to 255 in, contiguous or with the channels last in memory; outputs (n, width) out."""

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        ...


def run_inference(
    images: Images,
    backend: Callable[[Floats], Result],
    transform: Transform,
    *,
    indices: Indices | None = None,
    skipped: SkippedItems | None = None,
    augment_params: AugmentParams | None = None,
    work: str = "encoding images",
    progress: Progress = no_progress,
) -> Iterator[tuple[Indices, Result]]:
    """Yield the indices of images and what the backend returns for their pixels, batch by batch, in order.

    Unreadable images are counted in `skipped` and left out; without `skipped` the first one is an error. If there are
    `augment_params` (N, 5), images are augmented by them.
    """
    wanted = np.arange(len(images)) if indices is None else indices
    batches = [wanted[first : first + BATCH_SIZE] for first in range(0, len(wanted), BATCH_SIZE)]
    done = 0
    progress(work, 0.0)
    loaded = load_batches(images, batches, transform, augment_params=augment_params, skipped=skipped)
    for asked, batch in zip(batches, loaded, strict=True):
        done += len(asked)
        if len(batch.indices):
            yield batch.indices, backend(batch.images)
        progress(work, done / len(wanted))


def run_pixels(pixels: NDArray[Any], backend: Callable[[Floats], Result], transform: Transform) -> Iterator[Result]:
    """Yield what the backend returns for decoded pixels (N, side, side, 3), batch by batch, in order.

    Raises
    ------
    InputError
        For pixels of another shape or type than those of `transform.pixel_spec`.
    """
    spec = transform.pixel_spec
    if pixels.shape[1:] != spec.shape or pixels.dtype != spec.dtype:
        wanted = f"{spec.dtype} (N, {spec.side}, {spec.side}, 3)"
        raise InputError(f"The model takes pixels of the type {wanted}, not {pixels.dtype} {pixels.shape}.")
    for first in range(0, len(pixels), BATCH_SIZE):
        batch = transform.preprocess_pixels(pixels[first : first + BATCH_SIZE])
        yield backend(np.ascontiguousarray(batch))
