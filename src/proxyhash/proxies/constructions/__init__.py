"""Constructions of binary codes with a large minimal distance.

`hadamard` is for few classes, `bch` for many, `column_search` and `orbit_search` for linear codes in between; `best` tries
them and keeps the code of the largest measured distance.
"""

from proxyhash.proxies.constructions.best import best_code
from proxyhash.proxies.constructions.codewords import minimal_distance

__all__ = ["best_code", "minimal_distance"]
