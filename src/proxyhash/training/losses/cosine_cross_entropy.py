"""Softmax cross-entropy of angles: an embedding is asked to point to its proxy, not to reach it."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from proxyhash.training.losses.cross_entropy import proxy_cross_entropy


def cosine_cross_entropy(nu: Tensor, labels: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the mean over images of -log( exp(s_y) / sum_k exp(s_k) ), s_k = tau cos(w_k, nu(x)).

    Not the paper's: what its followers train with (OrthoHash, MDSH). `nu` (N, d), `labels` (N,), `proxies` (C, d). Where
    `proxy_cross_entropy` falls only as entries of nu saturate, and then slowly, as tanh does, this one falls as soon as
    their signs are right and their sizes alike.
    """
    return proxy_cross_entropy(_on_sphere(nu), labels, _on_sphere(proxies), tau)


def _on_sphere(rows: Tensor) -> Tensor:
    """Return `rows` (N, d) scaled to the norm of proxies, sqrt(d)."""
    return normalize(rows.to(torch.promote_types(rows.dtype, torch.float32))) * math.sqrt(rows.shape[1])
