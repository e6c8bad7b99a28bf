"""A cross-entropy for each bit: an embedding is asked for the bits of its proxy, whatever the other proxies are."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy


def bitwise_cross_entropy(nu: Tensor, goal: Tensor) -> Tensor:
    """Return the mean over images and bits of the binary cross-entropy of (nu + 1) / 2 and the wanted bit (w + 1) / 2.

    Not the paper's: what CSQ trains with. `nu` (N, d) within [-1, 1], `goal` (N, d) of +1 and -1. Its gradient undoes that
    of tanh, so a wrong bit is corrected however saturated it is; but no bit knows of the others, so an image between two
    classes gets some bits of each.
    """
    return binary_cross_entropy(((nu + 1) / 2).clamp(0, 1), (goal + 1) / 2)
