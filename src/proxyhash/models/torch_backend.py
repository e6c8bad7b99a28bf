"""Inference with torch."""

import torch
from torch import nn

from proxyhash.models.device import module_device
from proxyhash.models.onnx_backend import Floats


class TorchBackend:
    """Run a network with torch, on the device it is on."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network.eval()
        self.device = module_device(network)

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network without a graph; convolutions like their channels last in memory."""
        inputs = torch.from_numpy(pixels).to(self.device, memory_format=torch.channels_last)
        with torch.inference_mode():
            outputs: Floats = self.network(inputs).float().cpu().numpy()
            return outputs
