"""What training minimizes, sections 3 and 4.4 of the paper: pure functions of tensors, one a file.

The paper's joint loss, L = L_p + lambda L_t with lambda = 1, is one line and is left to the objective that knows which
proxy loss L_p fits its labels: `proxy_cross_entropy(...) + weight * hamming_triplet(...)`. All losses are means over the
batch, so that lambda means the same for every batch size.
"""

from proxyhash.training.losses.balanced_cross_entropy import balanced_binary_cross_entropy, tag_frequencies
from proxyhash.training.losses.binarisation import binarisation_error
from proxyhash.training.losses.bitwise_cross_entropy import bitwise_cross_entropy
from proxyhash.training.losses.cosine_cross_entropy import cosine_cross_entropy
from proxyhash.training.losses.cross_entropy import proxy_cross_entropy
from proxyhash.training.losses.proxy_nca import nca
from proxyhash.training.losses.similar import similar_pairs
from proxyhash.training.losses.triplet import hamming_distances, hamming_triplet, hamming_triplet_between, margin_in_bits

__all__ = [
    "balanced_binary_cross_entropy",
    "binarisation_error",
    "bitwise_cross_entropy",
    "cosine_cross_entropy",
    "hamming_distances",
    "hamming_triplet",
    "hamming_triplet_between",
    "margin_in_bits",
    "nca",
    "proxy_cross_entropy",
    "similar_pairs",
    "tag_frequencies",
]
