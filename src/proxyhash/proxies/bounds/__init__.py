"""Bounds on minimal distances of codes and of points on the sphere, and on assignments."""

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.bounds.sphere import least_max_cosine

__all__ = ["largest_min_distance", "least_max_cosine"]
