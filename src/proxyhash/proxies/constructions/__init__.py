"""Codes that are constructed, not searched on the sphere: the largest minimal distance for C classes and d bits.

`hadamard` and `plotkin` for few classes, `bch` for many, `column_search` for all linear codes in between, `annealed` for
what is left; `best` tries them and keeps what measures best.
"""

from proxyhash.proxies.constructions.best import best_code
from proxyhash.proxies.constructions.codewords import minimal_distance

__all__ = ["best_code", "minimal_distance"]
