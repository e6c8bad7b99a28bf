"""Inference with torch, and with onnxruntime on a CPU."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.utils.parallel import available_threads
from proxyhash.utils.progress import Progress, no_progress

Floats = NDArray[np.float32]

BATCH_SIZE = 64  # large enough to fill the cores, small enough for their caches


class InferenceBackend(Protocol):
    """Pixels (n, 3, size, size) from 0 to 255 in, outputs (n, width) out."""

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        ...


class TorchBackend:
    """Run a network with torch, on the device it is on."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network.eval()
        self.device = next(network.parameters()).device

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network without a graph; convolutions like their channels last in memory."""
        inputs = torch.from_numpy(pixels).to(self.device, memory_format=torch.channels_last)
        with torch.inference_mode():
            outputs: Floats = self.network(inputs).float().cpu().numpy()
            return outputs


class OnnxBackend:
    """Run an exported network with onnxruntime."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or available_threads()
        # Threads that spin while they wait would take the cores from those that decode images.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        outputs: Floats = self.session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]
        return outputs


def is_onnx_available() -> bool:
    """Return whether networks can be exported and run by onnxruntime here."""
    return find_spec("onnxruntime") is not None and find_spec("onnxscript") is not None


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
