"""SUBIC: structured one-hot blocks from softmaxes (Jain, Zepeda, Perez and Gribonval 2017)."""

from dataclasses import dataclass
from math import log
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import BlockHead, HeadConfig
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class SubicSettings(MethodSettings):
    """Settings of SUBIC: the weights of the two entropies.

    The defaults are ours: with weights of 1 the entropies outweigh the classifier and retrieve held-out digits worse. The
    authors' weights could not be looked up.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"sparse": 0.1, "spread": 0.1},
        {"sparse": 1.0, "spread": 1.0},
        {"sparse": 0.1, "spread": 1.0},
    )

    sparse: float = 0.1  # gamma: pushes an image's blocks to be one-hot
    spread: float = 0.1  # mu: pushes a block to use all its values over a batch


@register_method(
    "subic", title="SUBIC", family="proxy", year=2017, settings=SubicSettings, learns_from="classes", metric="one-hot blocks"
)
class Subic(HashingMethod):
    """SUBIC, Jain et al. 2017.

    The loss is the cross-entropy / log C of a linear classifier on the M blocks of k values (N, M k), plus gamma mean
    H(block) / log k, minus mu H(mean block) / log k, where the mean block is that of the batch. Every term lies between
    0 and 1 for any number of classes, blocks and values.

    Only the abstract of the paper could be read, and no code of the authors.
    """

    settings: SubicSettings

    def __init__(self, data: TrainingData, settings: SubicSettings) -> None:
        super().__init__(data, settings)
        if data.num_classes < 2:
            raise InputError("SUBIC classifies, so there must be at least 2 classes.")
        blocks = BlockHead(HeadConfig(1, data.bits))
        self.values = 2**blocks.subcode_bits
        self.classifier = nn.Linear(blocks.out_features, data.num_classes)

    def build_head(self, config: HeadConfig) -> BlockHead:
        """Return blocks of softmax."""
        return BlockHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch of blocks (N, M k)."""
        logits = self.scores(embeddings)
        blocks = embeddings.unflatten(1, (-1, self.values))
        sparse, spread = (entropy(part).mean() / log(self.values) for part in (blocks, blocks.mean(0)))
        loss = cross_entropy(logits, targets) / log(logits.shape[1])
        return loss + self.settings.sparse * sparse - self.settings.spread * spread

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the classifier's logits (N, C)."""
        logits: Tensor = self.classifier(embeddings)
        return logits


def entropy(probabilities: Tensor) -> Tensor:
    """Return H over the last axis, in nats."""
    return -(probabilities * probabilities.clamp(min=1e-12).log()).sum(-1)
