"""Losses around proxies: cross-entropies, ProxyNCA, and losses of single bits."""

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, cross_entropy, logsigmoid, normalize

from proxyhash.losses.checks import check_classes
from proxyhash.losses.pairwise import inner_products
from proxyhash.utils.errors import InputError


def proxy_logits(embeddings: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the logits s_k = (tau / d) w_k . nu(x), which lie in [-tau, tau] for proxies of norm sqrt(d).

    The paper has tau = d, at which the softmax is certain, and its gradient vanishes, long before the embedding
    saturates; with tau around 8 to 15 the embedding has to reach the corner.

    Parameters
    ----------
    embeddings
        nu (N, d).
    proxies
        w (C, d), of norm sqrt(d).
    tau
        The scale of the logits.

    Returns
    -------
    Tensor
        (N, C).

    Raises
    ------
    InputError
        If tau is not positive.

    Examples
    --------
    >>> proxy_logits(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 1.0], [1.0, -1.0]]), tau=6.0)
    tensor([[6., 0.]])
    """
    if not tau > 0:
        raise InputError(f"tau must be above 0, not {tau}.")
    return inner_products(embeddings, proxies) * (tau / embeddings.shape[1])


def proxy_cross_entropy(
    embeddings: Tensor, labels: Tensor, proxies: Tensor, tau: float, bias: Tensor | None = None
) -> Tensor:
    """Return the mean over images of L_p(x, y) = -log( exp(s_y) / sum_k exp(s_k) ), s_k = (tau / d) w_k . nu(x) + b_k.

    This is the paper's proxy loss for single labels, with the scale written out (see `proxy_logits`; tau = d is the
    paper's). The paper's classifier, eq. (softmax), has a class bias b; its loss of hash codes, eq. (xent2), has none. By
    its appendix, softmax ranks classes by the distance of nu to w_k if b_k = -||w_k||^2 / 2 + log P(k), up to a constant:
    for fixed proxies of one norm and balanced classes all b_k are equal and cancel. Learned proxies have any norm, and
    unbalanced classes any prior; then a bias changes the loss.

    Parameters
    ----------
    embeddings
        nu (N, d).
    labels
        Classes y (N,).
    proxies
        w (C, d).
    tau
        The scale of the logits.
    bias
        b (C,); None: 0.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> proxies = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> proxy_cross_entropy(proxies, torch.tensor([0, 1]), proxies, tau=1.0)
    tensor(0.1269)
    """
    check_classes(labels, embeddings)
    logits = proxy_logits(embeddings, proxies, tau)
    return cross_entropy(logits if bias is None else logits + bias, labels.long())


def proxy_nca(embeddings: Tensor, labels: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of -log( exp(s_y) / sum_{k != y} exp(s_k) ), s_k = (tau / d) w_k . nu(x).

    Neighborhood component analysis around proxies, section 3.1: as the cross-entropy, but the sum leaves the image's own
    class y out, so the loss has no lower bound. For proxies of one norm the softmax of s is that of the negative squared
    distances -(tau / d) ||nu - w||^2 / 2 (appendix).

    Parameters
    ----------
    embeddings
        nu (N, d).
    labels
        Classes y (N,).
    proxies
        w (C, d), of one norm; at least two.
    tau
        The scale of the logits.

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    InputError
        If there are fewer than two proxies.

    Examples
    --------
    >>> proxies = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> proxy_nca(proxies, torch.tensor([0, 1]), proxies, tau=1.0)
    tensor(-2.)
    """
    check_classes(labels, embeddings)
    if len(proxies) < 2:
        raise InputError("NCA compares an image's class with the others, so there must be at least 2 proxies.")
    logits, own = proxy_logits(embeddings, proxies, tau), labels.long()[:, None]
    others = logits.scatter(1, own, -torch.inf).logsumexp(dim=1)
    return (others - logits.gather(1, own)[:, 0]).mean()


def cosine_cross_entropy(embeddings: Tensor, labels: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of -log( exp(s_y) / sum_k exp(s_k) ), s_k = tau cos(w_k, nu(x)).

    This is not the paper's loss: OrthoHash trains with it and a margin. `proxy_cross_entropy` falls only as entries of nu
    saturate; this one falls as soon as their signs are right and their sizes equal.

    Parameters
    ----------
    embeddings
        nu (N, d).
    labels
        Classes y (N,).
    proxies
        w (C, d).
    tau
        The scale of the logits.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> proxies = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> cosine_cross_entropy(0.1 * proxies, torch.tensor([0, 1]), proxies, tau=1.0)
    tensor(0.1269)
    """
    return proxy_cross_entropy(_on_sphere(embeddings), labels, _on_sphere(proxies), tau)


def balanced_binary_cross_entropy(
    embeddings: Tensor, tags: Tensor, proxies: Tensor, frequencies: Tensor, tau: float
) -> Tensor:
    """Return the mean over images of L_p(x, t) = - sum_k [ c_k t_k log s_k + (1 - c_k) (1 - t_k) log(1 - s_k) ].

    The paper's loss for tags, section 4.4. Two slips of the paper are corrected:

    - s_k = sigmoid(+(tau / d) w_k . nu): with the printed sign a tag would push its images away from its proxy;
    - c_k = 1 - f_k, as in the balanced loss that the paper cites: an inverse 1 / f_k would make 1 - c_k a negative weight.
      A tag's positives then weigh f_k (1 - f_k) altogether, and so do its negatives.

    The sum over tags is the paper's; a mean would change what lambda means with the size of the vocabulary.

    Parameters
    ----------
    embeddings
        nu (N, d).
    tags
        t (N, T) of 0 and 1.
    proxies
        w (T, d).
    frequencies
        f (T,), see `tag_frequencies`.
    tau
        The scale of the logits.

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    InputError
        If the shapes do not match.

    Examples
    --------
    >>> proxies = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> frequencies = torch.tensor([0.5, 0.5])
    >>> balanced_binary_cross_entropy(proxies[:1], torch.tensor([[1, 0]]), proxies, frequencies, tau=1.0)
    tensor(0.5032)
    """
    logits = proxy_logits(embeddings, proxies, tau)
    if tags.shape != logits.shape or frequencies.shape != logits.shape[1:]:
        raise InputError(
            f"Tags must have shape {tuple(logits.shape)} and frequencies {tuple(logits.shape[1:])}, "
            f"not {tuple(tags.shape)} and {tuple(frequencies.shape)}."
        )
    present, rare = tags.to(logits.dtype), 1 - frequencies.to(logits.dtype)
    likelihood = rare * present * logsigmoid(logits) + (1 - rare) * (1 - present) * logsigmoid(-logits)
    return -likelihood.sum(dim=1).mean()


def tag_frequencies(tags: Tensor) -> Tensor:
    """Return the fraction of images that have each tag, f_k.

    Parameters
    ----------
    tags
        Tags of all training images (N, T), of 0 and 1.

    Returns
    -------
    Tensor
        (T,), in double precision.

    Raises
    ------
    InputError
        If the tags are not a matrix with at least one image.

    Examples
    --------
    >>> tag_frequencies(torch.tensor([[1, 0], [1, 1]]))
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    if tags.ndim != 2 or len(tags) == 0:
        raise InputError(f"Tags must be a matrix (images, tags) with at least one image, not of shape {tuple(tags.shape)}.")
    return tags.double().mean(dim=0)


def bitwise_cross_entropy(embeddings: Tensor, target_codes: Tensor) -> Tensor:
    """Return the mean over images and bits of the binary cross-entropy of (nu + 1) / 2 and the target bit (t + 1) / 2.

    This is not the paper's loss: CSQ trains with it. Its gradient cancels that of tanh, so a wrong bit is corrected
    however saturated it is; but bits are independent, so an image between two classes gets some bits of each.

    Parameters
    ----------
    embeddings
        nu (N, d), within [-1, 1].
    target_codes
        t (N, d) of +1 and -1.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> bitwise_cross_entropy(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
    tensor(0.3466)
    """
    with torch.autocast(embeddings.device.type, enabled=False):  # which refuses this loss in half precision
        return binary_cross_entropy(((embeddings + 1) / 2).clamp(0, 1), (target_codes + 1) / 2)


def polarization_loss(embeddings: Tensor, target_codes: Tensor, margin: float) -> Tensor:
    """Return the mean over images and bits of max(0, m - u t), a hinge for every bit.

    Parameters
    ----------
    embeddings
        u (N, bits), not bounded.
    target_codes
        t (N, bits) of +1 and -1.
    margin
        m.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> polarization_loss(torch.tensor([[0.5, 3.0]]), torch.tensor([[1.0, 1.0]]), margin=1.0)
    tensor(0.2500)
    """
    return (margin - embeddings * target_codes).clamp(min=0).mean()


def _on_sphere(rows: Tensor) -> Tensor:
    """Return `rows` (N, d) scaled to the norm of proxies, sqrt(d)."""
    return normalize(rows.to(torch.promote_types(rows.dtype, torch.float32))) * math.sqrt(rows.shape[1])
