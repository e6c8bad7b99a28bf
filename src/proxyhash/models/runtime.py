"""Inference with torch, and the loop over images that all backends share."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.precision import Precision, autocast, move_batch
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

BATCH_SIZE = 64  # large enough to fill the cores, small enough for their caches


class InferenceBackend(Protocol):
    """Pixels (n, 3, size, size) from 0 to 255 in, outputs (n, width) out."""

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        ...


class TorchBackend:
    """Run a network with torch, on the device it is on, in a precision of its forward pass."""

    def __init__(self, network: nn.Module, precision: Precision = "float32") -> None:
        self.network = network.eval()
        self.device, self.precision = next(network.parameters()).device, precision

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network without a graph; convolutions like their channels last in memory."""
        inputs = move_batch(torch.from_numpy(pixels), self.device).contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), autocast(self.device, self.precision):
            outputs: Floats = self.network(inputs).float().cpu().numpy()
            return outputs


def run_inference(
    images: Images,
    backend: InferenceBackend,
    transform: Transform,
    *,
    indices: Indices | None = None,
    skipped: SkippedItems | None = None,
    work: str = "encoding images",
    progress: Progress = no_progress,
) -> Iterator[tuple[Indices, Floats]]:
    """Yield the indices of images and their outputs (n, width), batch by batch, in order.

    Unreadable images are counted in `skipped` and left out; without `skipped` the first one is an error.
    """
    wanted = np.arange(len(images)) if indices is None else indices
    batches = [wanted[first : first + BATCH_SIZE] for first in range(0, len(wanted), BATCH_SIZE)]
    done = 0
    progress(work, 0.0)
    for asked, batch in zip(batches, load_batches(images, batches, transform, skipped=skipped), strict=True):
        done += len(asked)
        if len(batch.indices):
            yield batch.indices, backend(batch.images.contiguous().numpy())
        progress(work, done / len(wanted))


def run_pixels(pixels: NDArray[Any], backend: InferenceBackend, transform: Transform) -> Iterator[Floats]:
    """Yield the outputs (n, width) of decoded pixels (N, side, side, 3), batch by batch, in order.

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
        yield backend(batch.contiguous().numpy())
