"""Losses around proxies as modules: `loss(embeddings, labels)`."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from proxyhash.losses.checks import check_classes, check_embeddings
from proxyhash.losses.proxy import (
    balanced_binary_cross_entropy,
    bitwise_cross_entropy,
    cosine_cross_entropy,
    polarization_loss,
    proxy_cross_entropy,
    proxy_nca,
)
from proxyhash.proxies import ProxySet
from proxyhash.utils.errors import InputError

TAU_OF_CLASSES, TAU_OF_TAGS = 6.0, 0.5


class LossAroundProxies(nn.Module):
    """Loss with `proxies` (C, bits): a buffer, or a parameter if they are trainable."""

    proxies: Tensor

    def __init__(self, proxies: ProxySet | Tensor | ArrayLike, *, trainable: bool | None = None) -> None:
        super().__init__()
        if trainable is None:
            trainable = isinstance(proxies, ProxySet) and proxies.trainable
        weights = _as_matrix(proxies)
        if trainable:
            self.proxies = nn.Parameter(weights)
        else:
            self.register_buffer("proxies", weights)

    def extra_repr(self) -> str:
        """Return the sizes and the settings."""
        settings = {"classes": len(self.proxies), "bits": self.proxies.shape[1], **self._settings()}
        return ", ".join(f"{name}={value}" for name, value in settings.items())

    def _settings(self) -> dict[str, Any]:
        return {}

    def _check(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the embeddings, in single precision or better, once embeddings and classes are checked."""
        embeddings = self._check_embeddings(embeddings)
        check_classes(labels, embeddings, len(self.proxies))
        return embeddings

    def _check_embeddings(self, embeddings: Tensor) -> Tensor:
        embeddings, bits = check_embeddings(embeddings), self.proxies.shape[1]
        if embeddings.shape[1] != bits:
            raise InputError(f"The proxies have {bits} bits, and the embeddings {embeddings.shape[1]}.")
        return embeddings


class _ScaledLoss(LossAroundProxies):
    """Loss of classes around proxies whose logits have a scale `tau`."""

    def __init__(
        self, proxies: ProxySet | Tensor | ArrayLike, *, tau: float | None = None, trainable: bool | None = None
    ) -> None:
        super().__init__(proxies, trainable=trainable)
        self.tau = _check_tau(TAU_OF_CLASSES if tau is None else tau)

    def _settings(self) -> dict[str, Any]:
        return {"tau": self.tau}


class ProxyLoss(_ScaledLoss):
    """The paper's loss: the softmax cross-entropy of the inner products with proxies, section 3.3.

    L(nu, y) = -log( exp(s_y) / sum_k exp(s_k) ), s_k = (tau / bits) w_k . nu + b_k, the mean over a batch. Each embedding
    moves to the proxy of its class. Call it with embeddings nu (N, bits) within [-1, 1], such as those of `HashHead`, and
    classes (N,) of integers.

    Parameters
    ----------
    proxies
        w: a `ProxySet` of `design_proxies`, or a matrix (C, bits) with rows of norm sqrt(bits), such as codes of +1 and -1.
    tau
        Scale of the logits, which lie in [-tau, tau]; None: 6.
    trainable
        Whether the proxies are parameters. None: only those of the kind "learned".
    bias
        Whether `bias` b (C,) is a parameter, which starts at 0; by default there is none. See `proxy_cross_entropy`.

    Raises
    ------
    InputError
        For proxies that are no matrix, a tau that is not positive, and a batch of other shapes or types.

    Examples
    --------
    >>> from proxyhash import design_proxies
    >>> from proxyhash.losses import ProxyLoss
    >>> loss = ProxyLoss(design_proxies(classes=10, bits=16, kind="hclm"))
    >>> embeddings = torch.zeros(4, 16, requires_grad=True)
    >>> value = loss(embeddings, torch.tensor([0, 3, 3, 9]))
    >>> value.backward()
    >>> round(value.item(), 4)  # log 10: all classes are equally near
    2.3026
    """

    def __init__(
        self,
        proxies: ProxySet | Tensor | ArrayLike,
        *,
        tau: float | None = None,
        trainable: bool | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(proxies, tau=tau, trainable=trainable)
        self.bias = nn.Parameter(torch.zeros(len(self.proxies))) if bias else None

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), classes (N,)."""
        return proxy_cross_entropy(self._check(embeddings, labels), labels, self.proxies, self.tau, self.bias)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), **({} if self.bias is None else {"bias": True})}


class ProxyNCALoss(_ScaledLoss):
    """Neighborhood component analysis around proxies, section 3.1.

    L(nu, y) = -log( exp(s_y) / sum_{k != y} exp(s_k) ), s_k = (tau / bits) w_k . nu, the mean over a batch: `ProxyLoss`
    without the own class in the sum. Embeddings (N, bits), classes (N,).

    Parameters
    ----------
    proxies
        w: a `ProxySet`, or a matrix (C, bits) with rows of norm sqrt(bits); at least two.
    tau
        Scale of the logits; None: 6.
    trainable
        Whether the proxies are parameters. None: only those of the kind "learned".

    Examples
    --------
    >>> from proxyhash.losses import ProxyNCALoss
    >>> loss = ProxyNCALoss([[1, 1], [-1, -1]], tau=1.0)
    >>> loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0]))
    tensor(-2.)
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), classes (N,)."""
        return proxy_nca(self._check(embeddings, labels), labels, self.proxies, self.tau)


class CosineProxyLoss(_ScaledLoss):
    """Softmax cross-entropy of the cosines with proxies, as in OrthoHash without margin.

    L(nu, y) = -log( exp(s_y) / sum_k exp(s_k) ), s_k = tau cos(w_k, nu), the mean over a batch. It does not depend on the
    length of embeddings (N, bits), so that it does not saturate them. Classes (N,).

    Parameters
    ----------
    proxies
        w: a `ProxySet`, or a matrix (C, bits).
    tau
        Scale of the cosines; None: 6. OrthoHash has 8.
    trainable
        Whether the proxies are parameters. None: only those of the kind "learned".

    Examples
    --------
    >>> from proxyhash.losses import CosineProxyLoss
    >>> loss = CosineProxyLoss([[1, 1], [-1, -1]], tau=1.0)
    >>> loss(torch.tensor([[0.1, 0.1]]), torch.tensor([0]))
    tensor(0.1269)
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), classes (N,)."""
        return cosine_cross_entropy(self._check(embeddings, labels), labels, self.proxies, self.tau)


class BitwiseProxyLoss(LossAroundProxies):
    """Binary cross-entropy of every bit of an embedding and its proxy, as in CSQ.

    L(nu, y) = -mean_k log( (1 + w_yk nu_k) / 2 ), the mean over a batch. Embeddings (N, bits) within [-1, 1], classes (N,).

    Parameters
    ----------
    proxies
        w: a `ProxySet` of +1 and -1, such as those of the kind "shclm" or "code", or such a matrix (C, bits).

    Raises
    ------
    InputError
        For proxies of other numbers than +1 and -1.

    Examples
    --------
    >>> from proxyhash.losses import BitwiseProxyLoss
    >>> loss = BitwiseProxyLoss([[1, 1], [-1, -1]])
    >>> loss(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))  # log(2) / 2
    tensor(0.3466)
    """

    def __init__(self, proxies: ProxySet | Tensor | ArrayLike) -> None:
        super().__init__(proxies, trainable=False)
        _check_binary(self)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), classes (N,)."""
        embeddings = self._check(embeddings, labels)
        return bitwise_cross_entropy(embeddings, self.proxies[labels.long()].to(embeddings.dtype))


class PolarizationLoss(LossAroundProxies):
    """Hinge for every bit of an embedding and its proxy, as in DPN.

    L(u, y) = mean_k max(0, m - w_yk u_k), the mean over a batch. Embeddings u (N, bits) need no bounds, classes (N,).

    Parameters
    ----------
    proxies
        w: a `ProxySet` of +1 and -1, such as those of the kind "shclm" or "code", or such a matrix (C, bits).
    margin
        m, above 0; DPN has 1.

    Raises
    ------
    InputError
        For proxies of other numbers than +1 and -1, and a margin that is not positive.

    Examples
    --------
    >>> from proxyhash.losses import PolarizationLoss
    >>> loss = PolarizationLoss([[1, 1], [-1, -1]])
    >>> loss(torch.tensor([[0.5, 3.0]]), torch.tensor([0]))
    tensor(0.2500)
    """

    def __init__(self, proxies: ProxySet | Tensor | ArrayLike, *, margin: float = 1.0) -> None:
        super().__init__(proxies, trainable=False)
        _check_binary(self)
        if not margin > 0:
            raise InputError(f"margin must be above 0, not {margin}.")
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), classes (N,)."""
        embeddings = self._check(embeddings, labels)
        return polarization_loss(embeddings, self.proxies[labels.long()], self.margin)

    def _settings(self) -> dict[str, Any]:
        return {"margin": self.margin}


class TagProxyLoss(LossAroundProxies):
    """The paper's loss for tags: a balanced binary cross-entropy around a proxy for each tag, section 4.4.

    L(nu, t) = -sum_k [ (1 - f_k) t_k log p_k + f_k (1 - t_k) log(1 - p_k) ], p_k = sigmoid((tau / bits) w_k . nu), the mean
    over a batch. With the frequencies f, the images with a tag weigh as much as those without. Embeddings (N, bits) within
    [-1, 1]; labels are tags (N, T) of 0 and 1, of any type.

    Parameters
    ----------
    proxies
        w: a `ProxySet` of `design_proxies`, or a matrix (T, bits) with rows of norm sqrt(bits).
    frequencies
        f (T,): the fraction of the training images that have each tag, such as `tag_frequencies(tags)`.
    tau
        Scale of the logits; None: 0.5. An image cannot be at the proxies of all its tags, so it is smaller than for classes.
    trainable
        Whether the proxies are parameters. None: only those of the kind "learned".

    Raises
    ------
    InputError
        For frequencies of another shape or outside 0 to 1, and a batch of other shapes.

    Examples
    --------
    >>> from proxyhash import design_proxies, tag_similarity
    >>> from proxyhash.losses import TagProxyLoss, tag_frequencies
    >>> tags = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]])
    >>> proxies = design_proxies(classes=3, bits=8, similarity=tag_similarity(tags.numpy()))
    >>> loss = TagProxyLoss(proxies, tag_frequencies(tags))
    >>> round(loss(torch.zeros(4, 8), tags).item(), 4)  # 3 tags of frequency 1/2: 3 log(2) / 2
    1.0397
    """

    frequencies: Tensor

    def __init__(
        self,
        proxies: ProxySet | Tensor | ArrayLike,
        frequencies: Tensor | ArrayLike,
        *,
        tau: float | None = None,
        trainable: bool | None = None,
    ) -> None:
        super().__init__(proxies, trainable=trainable)
        self.tau = _check_tau(TAU_OF_TAGS if tau is None else tau)
        fractions = torch.as_tensor(frequencies).detach().clone()
        if fractions.shape != self.proxies.shape[:1] or not ((fractions >= 0) & (fractions <= 1)).all():
            raise InputError(
                f"Frequencies must be a fraction from 0 to 1 for each of {len(self.proxies)} tags, see tag_frequencies."
            )
        self.register_buffer("frequencies", fractions)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: embeddings (N, bits), tags (N, T)."""
        embeddings, tags = self._check_embeddings(embeddings), len(self.proxies)
        if not isinstance(labels, Tensor) or labels.shape != (len(embeddings), tags):
            shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
            raise InputError(f"Labels must be a tensor of 0 and 1 of shape ({len(embeddings)}, {tags}), not {shape}.")
        return balanced_binary_cross_entropy(embeddings, labels, self.proxies, self.frequencies, self.tau)

    def _settings(self) -> dict[str, Any]:
        return {"tau": self.tau}


def _as_matrix(proxies: ProxySet | Tensor | ArrayLike) -> Tensor:
    """Return a copy of proxies as a matrix (C, bits) of real numbers."""
    given = proxies.weights.copy() if isinstance(proxies, ProxySet) else proxies
    weights = given.detach().clone() if isinstance(given, Tensor) else torch.tensor(np.asarray(given))
    if weights.ndim != 2 or 0 in weights.shape or weights.is_complex() or weights.dtype == torch.bool:
        raise InputError(
            f"Proxies must be a ProxySet or a matrix (classes, bits), not {weights.dtype} of shape {tuple(weights.shape)}."
        )
    return weights if weights.is_floating_point() else weights.float()


def _check_tau(tau: float) -> float:
    if not tau > 0:
        raise InputError(f"tau must be above 0, not {tau}.")
    return tau


def _check_binary(loss: LossAroundProxies) -> None:
    if not (loss.proxies.abs() == 1).all():
        raise InputError(f"{type(loss).__name__} needs proxies of +1 and -1, such as those of the kind shclm or code.")
