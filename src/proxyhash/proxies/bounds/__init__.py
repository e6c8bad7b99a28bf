"""Upper bounds on how far apart C points can be: corners of the cube (binary proxies) or points of the sphere."""

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.bounds.sphere import least_max_cosine

__all__ = ["largest_min_distance", "least_max_cosine"]
