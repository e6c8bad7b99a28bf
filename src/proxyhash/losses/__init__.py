"""Losses as modules, `loss(embeddings, labels)`, and the functions of tensors that they are made of.

All losses are means over the batch, so that weights between them, such as lambda of the joint loss
L = L_p + lambda L_t (section 4.4 of the paper), mean the same for every batch size.

Examples
--------
>>> import torch
>>> from proxyhash import design_proxies, losses
>>> proxy, triplet = losses.ProxyLoss(design_proxies(classes=10, bits=16, kind="hclm")), losses.HammingTripletLoss()
>>> embeddings, labels = torch.zeros(4, 16, requires_grad=True), torch.tensor([0, 0, 1, 1])
>>> loss = proxy(embeddings, labels) + 0.2 * triplet(embeddings, labels)
>>> loss.backward()
"""

from proxyhash.losses.batch_modules import (
    AveragePrecisionLoss,
    HammingTripletLoss,
    MutualInformationLoss,
    PairwiseLoss,
    QuantizationLoss,
    TripletHingeLoss,
)
from proxyhash.losses.histogram import batch_histograms, mutual_information, relaxed_average_precision, soft_histograms
from proxyhash.losses.pairwise import batch_pairs, hamming_distances, inner_products, masked_mean, pair_nll, similar_pairs
from proxyhash.losses.proxy import (
    balanced_binary_cross_entropy,
    bitwise_cross_entropy,
    cosine_cross_entropy,
    polarization_loss,
    proxy_cross_entropy,
    proxy_logits,
    proxy_nca,
    tag_frequencies,
)
from proxyhash.losses.proxy_modules import (
    BitwiseProxyLoss,
    CosineProxyLoss,
    PolarizationLoss,
    ProxyLoss,
    ProxyNCALoss,
    TagProxyLoss,
)
from proxyhash.losses.quantization import quantization_loss
from proxyhash.losses.triplet import (
    hamming_triplet,
    hamming_triplet_between,
    margin_in_bits,
    similarity_levels,
    triplet_hinge,
)

__all__ = [
    "AveragePrecisionLoss",
    "BitwiseProxyLoss",
    "CosineProxyLoss",
    "HammingTripletLoss",
    "MutualInformationLoss",
    "PairwiseLoss",
    "PolarizationLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "QuantizationLoss",
    "TagProxyLoss",
    "TripletHingeLoss",
    "balanced_binary_cross_entropy",
    "batch_histograms",
    "batch_pairs",
    "bitwise_cross_entropy",
    "cosine_cross_entropy",
    "hamming_distances",
    "hamming_triplet",
    "hamming_triplet_between",
    "inner_products",
    "margin_in_bits",
    "masked_mean",
    "mutual_information",
    "pair_nll",
    "polarization_loss",
    "proxy_cross_entropy",
    "proxy_logits",
    "proxy_nca",
    "quantization_loss",
    "relaxed_average_precision",
    "similar_pairs",
    "similarity_levels",
    "soft_histograms",
    "tag_frequencies",
    "triplet_hinge",
]
