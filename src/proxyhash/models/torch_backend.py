"""Inference with torch."""

import torch
from torch import Tensor, nn

from proxyhash.models.device import module_device
from proxyhash.models.network import HashNetwork
from proxyhash.models.onnx_backend import Floats, Outputs
from proxyhash.models.precision import Precision, autocast, move_batch


class TorchBackend:
    """Run a network with torch, on the device it is on, in a precision of its forward pass."""

    def __init__(self, network: nn.Module, precision: Precision = "float32") -> None:
        self.network = network.eval()
        self.device, self.precision = module_device(network), precision

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network without a graph."""
        with torch.inference_mode(), autocast(self.device, self.precision):
            return _to_numpy(self.network(self._inputs(pixels)))

    def with_features(self, pixels: Floats) -> Outputs:
        """Return nu and the features q(x) of one pass through a `HashNetwork`."""
        assert isinstance(self.network, HashNetwork)
        with torch.inference_mode(), autocast(self.device, self.precision):
            features = self.network.features(self._inputs(pixels))
            return Outputs(_to_numpy(self.network.head(features)), _to_numpy(features))

    def _inputs(self, pixels: Floats) -> Tensor:
        """Return pixels on the device; convolutions like their channels last in memory."""
        return move_batch(torch.from_numpy(pixels), self.device).contiguous(memory_format=torch.channels_last)


def _to_numpy(outputs: Tensor) -> Floats:
    values: Floats = outputs.float().cpu().numpy()
    return values
