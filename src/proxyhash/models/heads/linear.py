"""Heads whose codes are the signs of a linear map."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from proxyhash.codes import binarize
from proxyhash.codes.adc import weighted_hamming_tables
from proxyhash.codes.bits import MAX_BITS
from proxyhash.models.heads.base import DEFAULT_HEAD, Floats, Head, HeadConfig, hidden_layers, register_head
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

MIN_SLICE = 50  # hidden units that each bit of a `DividedHead` reads at least, as the authors have it
SATURATION = 0.4  # epsilon of `DividedHead`: a sigmoid farther than this from 1/2 counts as 0 or 1


@register_head("linear")
class LinearHead(Head):
    """u = L'q + b, not bounded: for losses on the pre-activations."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        layers, width = hidden_layers(config)
        self.layers = nn.Sequential(*layers, nn.Linear(width, config.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return u (N, bits)."""
        u: Tensor = self.layers(features)
        return u


@register_head(DEFAULT_HEAD)
class HashHead(LinearHead):
    """The paper's head, nu = tanh(L'q + b): features q (N, in_features) to embeddings nu (N, bits) from -1 to 1.

    `encode` returns the codes of embeddings, their signs.

    Parameters
    ----------
    in_features
        The number of features; or a `HeadConfig`, which has all sizes.
    bits
        The length of the codes.
    hidden_dim
        Units of a hidden layer with batch normalization and ReLU; 0 for none, as in the paper.
    dropout
        The dropout rate before the last layer.

    Raises
    ------
    InputError
        For sizes that are no positive whole numbers, and a dropout outside 0 to 1.

    Examples
    --------
    >>> import torch
    >>> from proxyhash import HashHead
    >>> head = HashHead(512, bits=32)
    >>> embeddings = head(torch.zeros(3, 512))
    >>> embeddings.shape, head.encode(embeddings.detach().numpy()).shape  # 32 bits are four bytes
    (torch.Size([3, 32]), (3, 4))
    """

    is_bounded = True

    def __init__(
        self, in_features: int | HeadConfig, bits: int | None = None, *, hidden_dim: int = 0, dropout: float = 0.0
    ) -> None:
        if isinstance(in_features, HeadConfig):
            if bits is not None or hidden_dim or dropout:
                raise InputError("A HeadConfig has all sizes of a head; give either it or the sizes.")
            super().__init__(in_features)
        else:
            super().__init__(_check_config(in_features, bits, hidden_dim, dropout))

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        return torch.tanh(self.layers(features))


def _check_config(in_features: int, bits: int | None, hidden_dim: int, dropout: float) -> HeadConfig:
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and below 1, not {dropout}.")
    return HeadConfig(
        check_int("in_features", in_features, 1),
        check_int("bits", bits, 1, MAX_BITS),
        check_int("hidden_dim", hidden_dim, 0),
        dropout,
    )


@register_head("linear-bn")
class BatchNormHead(LinearHead):
    """u = BN(L'q), not bounded: every bit has mean 0 and variance 1 over a batch, so that its signs are balanced."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        layers, width = hidden_layers(config)
        last = nn.Linear(width, config.bits, bias=False)  # the normalization has a bias
        self.layers = nn.Sequential(*layers, last, nn.BatchNorm1d(config.bits))


@register_head("tanh-bn")
class BatchNormHashHead(BatchNormHead):
    """nu = tanh(BN(L'q)), from -1 to 1."""

    is_bounded = True

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        return torch.tanh(self.layers(features))


@register_head("weighted")
class WeightedHead(LinearHead):
    """u = L'q + b with signs as codes, compared by sum_k w_k [bits differ] with `weights` w (bits,)."""

    metric = "weighted hamming"
    weights: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.register_buffer("weights", torch.ones(config.bits))

    def encode_queries(self, outputs: Floats) -> Floats:
        """Return the tables (Q, bits, 2) of the weighted distance."""
        return weighted_hamming_tables(binarize(outputs), self.weights.cpu().numpy().astype(np.float64))


@register_head("divided")
class DividedHead(Head):
    """The divide-and-encode head of NINH (Lai, Pan, Liu and Yan 2015): every bit reads its own slice of hidden units.

    nu_k = 2 g(sigmoid(w_k' h_k + b_k)) - 1, where h_k is the k-th slice. g(s) is 0 below 1/2 - epsilon, 1 above
    1/2 + epsilon, and s in between. Where g is flat, its gradient is replaced by that of s (our addition): a bit that has
    saturated on the wrong side would not learn otherwise.
    """

    is_bounded = True

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        slice_dim = max(MIN_SLICE, config.hidden_dim // config.bits)
        layers, width = hidden_layers(config, slice_dim * config.bits)
        self.layers = nn.Sequential(*layers)
        self.slices = nn.Parameter(torch.randn(config.bits, width // config.bits) / slice_dim**0.5)
        self.bias = nn.Parameter(torch.zeros(config.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        sliced = self.layers(features).unflatten(1, self.slices.shape)
        soft = torch.sigmoid((sliced * self.slices).sum(2) + self.bias)
        hard = torch.where((soft - 0.5).abs() > SATURATION, soft.round(), soft)
        return 2 * (soft + (hard - soft).detach()) - 1


class ConcatHeads(Head):
    """Several heads on the same features (N, in_features), their outputs side by side."""

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__(HeadConfig(heads[0].config.in_features, sum(head.config.bits for head in heads)))
        self.heads = nn.ModuleList(heads)
        self.widths = [head.out_features for head in heads]

    @property
    def out_features(self) -> int:
        """Return the number of outputs of all heads."""
        return sum(self.widths)

    def forward(self, features: Tensor) -> Tensor:
        """Return the outputs of all heads (N, out_features)."""
        return torch.cat([head(features) for head in self.heads], 1)
