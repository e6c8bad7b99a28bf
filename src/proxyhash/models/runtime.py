"""Two ways to run a trained network on pixels: torch, and onnxruntime where there is only a CPU."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from proxyhash.utils.parallel import available_threads

Floats = NDArray[np.float32]


class Runner(Protocol):
    """Pixels (n, 3, size, size) from 0 to 255 in, outputs (n, width) out."""

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        ...


class TorchRunner:
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


class OnnxRunner:
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


def onnx_available() -> bool:
    """Return whether networks can be exported and run by onnxruntime here."""
    return find_spec("onnxruntime") is not None and find_spec("onnxscript") is not None
