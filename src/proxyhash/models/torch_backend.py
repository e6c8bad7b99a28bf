"""Inference with torch."""

import torch
from torch import nn

from proxyhash.models.device import module_device
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.precision import Precision, autocast, move_batch


class TorchBackend:
    """Run a network with torch, on the device it is on, in a precision of its forward pass."""

    def __init__(self, network: nn.Module, precision: Precision = "float32") -> None:
        self.network = network.eval()
        self.device, self.precision = module_device(network), precision

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network without a graph; convolutions like their channels last in memory."""
        inputs = move_batch(torch.from_numpy(pixels), self.device).contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), autocast(self.device, self.precision):
            outputs: Floats = self.network(inputs).float().cpu().numpy()
            return outputs
