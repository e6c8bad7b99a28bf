"""Softmax-PQ: product quantization of a classifier's softmax (Sablayrolles, Douze, Usunier and Jegou 2017)."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import nll_loss

from proxyhash.methods.base import HashingMethod, MethodSettings, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, QuantizedHead, SoftmaxQuantizedHead


@register_method(
    "softmax-pq", title="Softmax-PQ", family="proxy", year=2017, learns_from="classes", metric="product quantizer"
)
class SoftmaxPq(HashingMethod):
    """Softmax-PQ, Sablayrolles et al. 2017.

    The loss is the cross-entropy of an ordinary classifier. Its softmax (N, C) is stored, with 8 bits for each of K / 8
    groups of classes. The authors learn the quantizer once; here it is fitted after each epoch, so that every epoch can
    be evaluated. No code of the authors was found to check against.
    """

    def __init__(self, data: TrainingData, settings: MethodSettings) -> None:
        super().__init__(data, settings)
        self.classes = data.num_classes

    def build_head(self, config: HeadConfig) -> SoftmaxQuantizedHead:
        """Return a head with an output for each class."""
        return SoftmaxQuantizedHead(replace(config, out_features=self.classes))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch of softmaxes (N, C)."""
        return nll_loss(embeddings.clamp(min=1e-12).log(), targets)

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the probabilities of the classes (N, C)."""
        return embeddings

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantizer."""
        assert isinstance(head, QuantizedHead)
        head.learn_codebooks(embed().numpy())
