"""Losses within a batch as modules: `loss(embeddings, labels)`."""

from torch import Tensor, nn

from proxyhash.losses.checks import check_embeddings, check_labels
from proxyhash.losses.histogram import batch_histograms, mutual_information, relaxed_average_precision
from proxyhash.losses.pairwise import batch_pairs, hamming_distances, inner_products, masked_mean, pair_nll
from proxyhash.losses.quantization import quantization_loss
from proxyhash.losses.triplet import hamming_triplet, margin_in_bits, similarity_levels, triplet_hinge
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


class HammingTripletLoss(nn.Module):
    """The paper's triplet loss, section 4.4: a soft margin between Hamming distances.

    L = log(1 + exp(m + d(x, x+) - d(x, x-))), d = (bits - nu . nu') / 2, the mean over all triplets of a batch, 0 if there
    are none. Embeddings nu (N, bits) within [-1, 1]; labels are classes (N,) or tags (N, T) of 0 and 1. Images are similar
    if they have one class or share a tag. Batches with several images of each class have triplets, see
    `ClassBalancedBatchSampler`.

    Parameters
    ----------
    margin
        m, in bits from 1 upwards, below 1 as a fraction of the code; None: 1/16 of the code.

    Raises
    ------
    InputError
        For a negative margin, and a batch of other shapes or types.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import HammingTripletLoss
    >>> loss = HammingTripletLoss(margin=1.0)
    >>> loss(torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]), torch.tensor([0, 0, 1]))
    tensor(0.3133)
    """

    def __init__(self, margin: float | None = None) -> None:
        super().__init__()
        if margin is not None and not margin >= 0:
            raise InputError("The margin may not be negative.")
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        embeddings = check_embeddings(embeddings)
        check_labels(labels, embeddings)
        return hamming_triplet(embeddings, labels, margin_in_bits(self.margin, embeddings.shape[1]))

    def extra_repr(self) -> str:
        """Return the margin."""
        return f"margin={self.margin}"


class TripletHingeLoss(nn.Module):
    """A hard margin between Hamming distances, weighted by the number of shared tags, as in DSRH.

    L = max(0, m + d(x, x+) - d(x, x-)), d = (bits - nu . nu') / 2, the mean over triplets of a batch with the weights
    2^r+ - 2^r-, where r+ and r- are the numbers of tags that x+ and x- share with x. For classes, and without `graded`, r is
    1 or 0. Embeddings (N, bits) within [-1, 1]; labels are classes (N,) or tags (N, T). In batches with more than 8,192
    pairs (x, x+), this many are drawn by torch's generator.

    Parameters
    ----------
    margin
        m, in bits from 1 upwards, below 1 as a fraction of the code.
    graded
        Count shared tags, instead of 1 for images that share any.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import TripletHingeLoss
    >>> loss = TripletHingeLoss(margin=1.0)
    >>> loss(torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, -1.0]]), torch.tensor([0, 0, 1]))
    tensor(0.7500)
    """

    def __init__(self, margin: float = 0.125, *, graded: bool = False) -> None:
        super().__init__()
        if not margin >= 0:
            raise InputError("The margin may not be negative.")
        self.margin, self.graded = margin, graded

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        embeddings = check_embeddings(embeddings)
        check_labels(labels, embeddings)
        distances, levels = hamming_distances(embeddings, embeddings), similarity_levels(labels, graded=self.graded)
        return triplet_hinge(distances, levels, margin_in_bits(self.margin, embeddings.shape[1]))

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"margin={self.margin}, graded={self.graded}"


class PairwiseLoss(nn.Module):
    """Negative log likelihood of pairs, as in DPSH, and weighted as in HashNet.

    L = log(1 + exp(theta)) - s theta, theta = scale nu . nu', s = 1 for similar pairs and 0 for others, the mean over all
    pairs of a batch; `balanced`: the mean over similar pairs plus that over dissimilar ones. Embeddings (N, bits); labels
    are classes (N,) or tags (N, T) of 0 and 1.

    Parameters
    ----------
    scale
        None: 1/2, as in DPSH. HashNet has a slope divided by the number of bits.
    balanced
        Give few similar pairs the weight of many dissimilar ones.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import PairwiseLoss
    >>> PairwiseLoss()(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([0, 1]))  # theta = 0: log 2
    tensor(0.6931)
    """

    def __init__(self, scale: float | None = None, *, balanced: bool = False) -> None:
        super().__init__()
        if scale is not None and not scale > 0:
            raise InputError(f"scale must be above 0, not {scale}.")
        self.scale, self.balanced = 0.5 if scale is None else scale, balanced

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        embeddings = check_embeddings(embeddings)
        check_labels(labels, embeddings)
        similar, dissimilar = batch_pairs(labels)
        losses = pair_nll(self.scale * inner_products(embeddings, embeddings), similar)
        if self.balanced:
            return masked_mean(losses, similar) + masked_mean(losses, dissimilar)
        return masked_mean(losses, similar | dissimilar)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"scale={self.scale}, balanced={self.balanced}"


class MutualInformationLoss(nn.Module):
    """The loss of MI-Hash: minus the mutual information of distances and similarity.

    L = -(H(D) - H(D | C)) in nats, the mean over the images of a batch as queries that have similar and dissimilar images.
    D is the Hamming distance to another image of the batch, in soft histograms; C says whether the two are similar.
    Embeddings (N, bits) within [-1, 1]; labels are classes (N,) or tags (N, T) of 0 and 1.

    Parameters
    ----------
    bins
        Bins of the histograms beside that of distance 0; None: as many as bits. The authors advise half as many.

    Raises
    ------
    InputError
        For fewer than one bin, and a batch of other shapes or types.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import MutualInformationLoss
    >>> corners = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    >>> MutualInformationLoss()(corners, torch.tensor([0, 0, 1, 1]))  # one similar of three: its entropy
    tensor(-0.6365)
    """

    def __init__(self, bins: int | None = None) -> None:
        super().__init__()
        self.bins = None if bins is None else check_int("bins", bins, 1)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        embeddings = check_embeddings(embeddings)
        check_labels(labels, embeddings)
        similar, dissimilar = batch_histograms(embeddings, labels, self.bins)
        return -masked_mean(mutual_information(similar, dissimilar), (similar.sum(1) > 0) & (dissimilar.sum(1) > 0))

    def extra_repr(self) -> str:
        """Return the number of bins."""
        return f"bins={self.bins}"


class AveragePrecisionLoss(nn.Module):
    """The loss of TALR-AP: 1 minus a relaxed, tie-aware average precision.

    L = 1 - AP_r, the mean over the images of a batch as queries that have similar images, on soft histograms of Hamming
    distances, see `relaxed_average_precision`. Embeddings (N, bits) within [-1, 1]; labels are classes (N,) or tags (N, T)
    of 0 and 1.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import AveragePrecisionLoss
    >>> corners = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    >>> AveragePrecisionLoss()(corners, torch.tensor([0, 0, 1, 1]))  # the similar image is the first
    tensor(0.)
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch."""
        embeddings = check_embeddings(embeddings)
        check_labels(labels, embeddings)
        similar, dissimilar = batch_histograms(embeddings, labels)
        return 1 - masked_mean(relaxed_average_precision(similar, dissimilar), similar.sum(1) > 0)


class QuantizationLoss(nn.Module):
    """The distance of embeddings from their codes, a term that many methods add.

    L = mean_k (nu_k - sign(nu_k))^2, the mean over a batch. Embeddings (N, bits). It is called like the others, but needs no
    labels.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.losses import QuantizationLoss
    >>> QuantizationLoss()(torch.tensor([[0.5, -1.0]]))
    tensor(0.1250)
    """

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return quantization_loss(check_embeddings(embeddings))
