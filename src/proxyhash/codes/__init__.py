"""Packed binary codes and everything that only needs their Hamming distances."""

from proxyhash.codes.bits import MAX_BITS, binarize, pack, unpack
from proxyhash.codes.search import Neighbors, RangeSearchResult, distance_histograms, hamming_distances, range_search, top_k

__all__ = [
    "MAX_BITS",
    "Neighbors",
    "RangeSearchResult",
    "binarize",
    "distance_histograms",
    "hamming_distances",
    "pack",
    "range_search",
    "top_k",
    "unpack",
]
