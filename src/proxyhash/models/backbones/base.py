"""What every image network is: normalized images in, features out, and facts about both."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from proxyhash.models.backbones.facts import BackboneConfig


class Backbone(nn.Module, ABC):
    """The paper's feature extractor q(x), below the hash layer; `facts` say how to feed it."""

    def __init__(self, facts: BackboneConfig) -> None:
        super().__init__()
        self.config = facts

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, width) of normalized images (N, 3, H, W)."""

    def set_bn_momentum(self, momentum: float) -> None:
        """Let the running statistics follow the batches faster (up to 1) or slower (down to 0)."""
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = momentum


def init_weights(network: nn.Module) -> None:
    """Draw weights so that ReLU layers keep the size of their input, fan-in of He et al. 2015; biases start at zero."""
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
