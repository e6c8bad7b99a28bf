"""Neighborhood component analysis around proxies (ProxyNCA), the near relative of the cross-entropy."""

import torch
from torch import Tensor

from proxyhash.training.losses.products import check_classes, proxy_scores
from proxyhash.utils.errors import InputError


def nca(nu: Tensor, labels: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of -log( exp(s_y) / sum_{k != y} exp(s_k) ), s_k = (tau / d) w_k . nu(x).

    Section 3.1: as the cross-entropy, but the sum leaves the image's own class y out, so the loss has no lower bound and
    never stops pulling. `nu` (N, d), `labels` (N,), `proxies` (C, d) of one norm, for which the softmax of s is that of
    the negative squared distances -(tau / d) ||nu - w||^2 / 2 (appendix).
    """
    check_classes(labels, nu)
    if len(proxies) < 2:
        raise InputError("NCA compares an image's class with the others, so there must be at least 2 proxies.")
    scores, own = proxy_scores(nu, proxies, tau), labels.long()[:, None]
    others = scores.scatter(1, own, -torch.inf).logsumexp(dim=1)
    return (others - scores.gather(1, own)[:, 0]).mean()
