"""Nested hash layer: the first bits of a code are shorter codes (He, Zhang, Li, Huang, Wu and Chen 2024)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from proxyhash.losses import inner_products
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import build_method, register_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

_BASES: Mapping[str, Mapping[str, Any]] = {"csq": {"pairs": 0.0, "quantization": 1e-4}, "shclm": {}}


@dataclass(frozen=True)
class NestedSettings(MethodSettings):
    """Settings of the nested hash layer.

    `base` is the loss of each code length: the authors' CSQ, or sHCLM (ours).
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"distill": 0.1}, {"distill": 1.0}, {"distill": 10.0})

    base: Literal["csq", "shclm"] = "csq"
    distill: float = 1.0  # weight of the distillation; 0 for none
    shortest: int = 8  # lengths are halved as long as they have this many bits

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_int("shortest", self.shortest, 1)
        if self.distill < 0:
            raise InputError("distill may not be negative.")


@register_method("nested", title="NHL", family="centers", year=2024, settings=NestedSettings)
class Nested(HashingMethod):
    """Nested hash layer, He, Zhang, Li, Huang, Wu and Chen 2024, around CSQ.

    One linear map has outputs u (N, K). Its first bits are codes of the lengths K, K / 2, K / 4, ..., down to 8 or more, and
    each of them has its own loss on tanh(u), around its own centers: the cross-entropy of CSQ plus 0.0001 times the mean of
    (|nu| - 1)^2. Each length but the last is distilled from the next longer one, whose outputs v (N, 2 b) have no gradient,
    by the sum of (g(u) - g(v))^2 / N^2, where g(u) is u u' (N, N) with rows of length 1. The loss is the mean over lengths.

    Checked against hly1998/NHL: `bl_network.py`, `bit_length/model_grand_sd.py`, `bit_length/distill.py`,
    `bit_length/CSQ.py` and `scripts/main.sh`, whose weight of the distillation is 1 in batches of 64; of the paper only the
    abstract could be read. This is their form without dynamic weights (`--distill` without `--analysis`), which need the
    gradient of each length by the weights of the last layer, and a loss here has embeddings only. Ours: the lengths are
    halves of K, where the authors have 8, 16, 32, 64 and 128; the mean over lengths in place of the sum; and the centers,
    which are those of `csq`.
    """

    settings: NestedSettings

    def __init__(self, data: TrainingData, settings: NestedSettings) -> None:
        super().__init__(data, settings)
        self.lengths = nested_lengths(data.bits, settings.shortest)
        bases = [build_method(settings.base, replace(data, bits=bits), _BASES[settings.base]) for bits in self.lengths]
        self.bases = nn.ModuleList(bases)

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh, because the distillation reads its outputs."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        codes = [embeddings[:, :bits] for bits in self.lengths]
        losses = [base(torch.tanh(u), targets, indices) for base, u in zip(self.bases, codes, strict=True)]
        if self.settings.distill:
            losses += [self.settings.distill * distillation_loss(short, long) for short, long in pairwise(codes)]
        return torch.stack(losses).sum() / len(codes)

    def scores(self, embeddings: Tensor) -> Tensor | None:
        """Return the scores of the longest code (N, C)."""
        longest = self.bases[-1]
        assert isinstance(longest, HashingMethod)
        return longest.scores(torch.tanh(embeddings))


def nested_lengths(bits: int, shortest: int) -> list[int]:
    """Return the code lengths, the shortest first.

    Examples
    --------
    >>> nested_lengths(64, 8), nested_lengths(36, 8), nested_lengths(6, 8)
    ([8, 16, 32, 64], [9, 18, 36], [6])
    """
    lengths = [bits]
    while lengths[0] // 2 >= shortest:
        lengths.insert(0, lengths[0] // 2)
    return lengths


def distillation_loss(short: Tensor, long: Tensor) -> Tensor:
    """Return how far the similarities of images by their short codes are from those by their long codes.

    Parameters
    ----------
    short
        Outputs (N, b) that learn.
    long
        Outputs (N, B) that are learned from, without gradient.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> short, long = torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> distillation_loss(short, long)  # rows [1, 1] / sqrt(2) beside [1, 0] and [0, 1]
    tensor(0.2929)
    """
    own, given = (normalize(inner_products(rows, rows)) for rows in (short, long.detach()))
    return (given - own).square().mean()
