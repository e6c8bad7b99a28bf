"""Packed binary codes and everything that only needs their Hamming distances."""

from proxyhash.codes.bits import MAX_BITS, pack, signs, unpack
from proxyhash.codes.search import Neighbors, WithinRadius, distances, histograms, top_k, within

__all__ = [
    "MAX_BITS",
    "Neighbors",
    "WithinRadius",
    "distances",
    "histograms",
    "pack",
    "signs",
    "top_k",
    "unpack",
    "within",
]
