"""MDSH: cross-entropy to centers with a guaranteed distance (Wang, Pan, Liu et al. 2023)."""

from math import sqrt

from torch import Tensor
from torch.nn.functional import normalize

from proxyhash.losses import CosineProxyLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.proxies import ProxySet, design_proxies


@register_method("mdsh", title="MDSH", family="centers", year=2023, learns_from="classes")
class Mdsh(HashingMethod):
    """MDSH, Wang et al. 2023.

    The loss is the softmax cross-entropy of sqrt(K) cos(nu, c_k), nu (N, K). The authors guarantee the
    Gilbert-Varshamov distance between centers; ours are the best code that we can construct, whose distance is never
    less.
    """

    def __init__(self, data: TrainingData, settings: MethodSettings) -> None:
        super().__init__(data, settings)
        self.designed = design_proxies(data.num_classes, data.bits, "code", seed=data.seed, progress=data.progress)
        self.loss = CosineProxyLoss(self.designed, tau=sqrt(data.bits))
        self.checkpoint_names = {"loss.proxies": "centers"}

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss: Tensor = self.loss(embeddings, targets)
        return loss

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return normalize(embeddings) @ normalize(self.loss.proxies).T

    def proxies(self) -> ProxySet:
        """Return the centers."""
        return self.designed
