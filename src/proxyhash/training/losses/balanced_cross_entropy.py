"""Balanced binary cross-entropy around the proxies of tags, the loss of multi-label sets."""

from torch import Tensor
from torch.nn.functional import logsigmoid

from proxyhash.training.losses.products import proxy_scores
from proxyhash.utils.errors import InputError


def balanced_binary_cross_entropy(nu: Tensor, tags: Tensor, proxies: Tensor, frequencies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of L_p(x, t) = - sum_k [ c_k t_k log s_k + (1 - c_k) (1 - t_k) log(1 - s_k) ].

    Section 4.4, for `nu` (N, d), `tags` (N, T) of 0 and 1, `proxies` (T, d) and `frequencies` (T,), the share of training
    images with each tag (see `tag_frequencies`). Two slips of the paper are read as they must be meant:

    - s_k = sigmoid(+(tau / d) w_k . nu): with the printed sign a tag would push its images away from its proxy;
    - c_k = 1 - f_k, as in the balanced loss it cites: an inverse 1 / f_k would make 1 - c_k a negative weight. A tag's
      positives then weigh f_k (1 - f_k) altogether, and so do its negatives.

    The sum over tags is the paper's; a mean would change what lambda means with the size of the vocabulary.
    """
    scores = proxy_scores(nu, proxies, tau)
    if tags.shape != scores.shape or frequencies.shape != scores.shape[1:]:
        raise InputError(
            f"Tags must have shape {tuple(scores.shape)} and frequencies {tuple(scores.shape[1:])}, "
            f"not {tuple(tags.shape)} and {tuple(frequencies.shape)}."
        )
    present, rare = tags.to(scores.dtype), 1 - frequencies.to(scores.dtype)
    likelihood = rare * present * logsigmoid(scores) + (1 - rare) * (1 - present) * logsigmoid(-scores)
    return -likelihood.sum(dim=1).mean()


def tag_frequencies(tags: Tensor) -> Tensor:
    """Return the share (T,) of images that have each tag, f_k, from all training `tags` (N, T) of 0 and 1."""
    if tags.ndim != 2 or len(tags) == 0:
        raise InputError(f"Tags must be a matrix (images, tags) with at least one image, not of shape {tuple(tags.shape)}.")
    return tags.double().mean(dim=0)
