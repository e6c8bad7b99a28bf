"""Softmax-PQ: a classifier's softmax, product-quantised (Sablayrolles, Douze, Usunier and Jegou 2017)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn.functional import nll_loss

from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import Head, HeadConfig, QuantisedHead, SoftmaxQuantisedHead
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class SoftmaxPqSettings:
    """Nothing to choose."""


class QuantisedClassifier(Objective):
    """Cross-entropy of an ordinary classifier; its softmax is what is stored, by 8 bits for each of K / 8 groups of classes.

    The authors learn the quantiser once; here it follows the classifier after each epoch, so that every epoch can be judged.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.classes = len(task.names)

    def head(self, shape: HeadConfig) -> SoftmaxQuantisedHead:
        """Return a head with an output for each class."""
        return SoftmaxQuantisedHead(replace(shape, outputs=self.classes))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch of softmaxes (N, C)."""
        return nll_loss(nu.clamp(min=1e-12).log(), targets)

    def scores(self, nu: Tensor) -> Tensor:
        """Return the chances of the classes (N, C)."""
        return nu

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantiser."""
        assert isinstance(head, QuantisedHead)
        head.learn_codebooks(embed().numpy())


@deep_method("softmax-pq", "Softmax-PQ", "proxy", 2017, SoftmaxPqSettings, takes_tags=False, searches="product quantiser")
def softmax_pq(task: Task, settings: SoftmaxPqSettings) -> QuantisedClassifier:  # noqa: ARG001
    """Return the objective."""
    return QuantisedClassifier(task)
