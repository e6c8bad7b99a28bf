"""Several lengths of one network as one: what they share is run once."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from proxyhash.models.hasher import Hasher
from proxyhash.models.heads import Head, HeadConfig
from proxyhash.models.network import HashNetwork


class ConcatHeads(Head):
    """Several heads on the same features (N, width), their outputs side by side."""

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__(HeadConfig(heads[0].config.in_features, sum(head.config.bits for head in heads)))
        self.heads = nn.ModuleList(heads)
        self.widths = [head.out_features for head in heads]

    @property
    def outputs(self) -> int:
        """Return how many there are in all."""
        return sum(self.widths)

    def forward(self, features: Tensor) -> Tensor:
        """Return the outputs of all heads (N, outputs)."""
        return torch.cat([head(features) for head in self.heads], 1)


def concat_hashers(hashers: Sequence[Hasher]) -> Hasher:
    """Return one hasher that embeds as all of these do, which share a backbone and a transform."""
    first = hashers[0]
    network = HashNetwork(first.network.features.backbone, ConcatHeads([hasher.head for hasher in hashers]))
    return Hasher(network.eval(), first.transform, metadata=first.metadata)
