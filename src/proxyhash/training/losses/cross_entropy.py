"""Softmax cross-entropy around proxies, the loss of single-label sets."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from proxyhash.training.losses.products import check_classes, proxy_scores


def proxy_cross_entropy(nu: Tensor, labels: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of L_p(x, y) = -log( exp(s_y) / sum_k exp(s_k) ), s_k = (tau / d) w_k . nu(x).

    This is the paper's proxy loss (section 3.3), for `nu` (N, d), `labels` (N,) and `proxies` (C, d), with the scale
    written out (see `proxy_scores`; tau = d is the paper's letter) and without a class bias: proxies of one norm and
    balanced classes have equal biases, which cancel (appendix).
    """
    check_classes(labels, nu)
    return cross_entropy(proxy_scores(nu, proxies, tau), labels.long())
