"""Binary codes: how far apart can C words of d bits be? The classical upper bounds on A(d, D), each exact arithmetic.

A(d, D) is the most words of d bits with pairwise distances of at least D. For odd D, A(d, D) = A(d + 1, D + 1), so every
bound below is asked about even D only.
"""

from functools import cache
from math import comb

from proxyhash.proxies.bounds.delsarte import delsarte_bound

# The best upper bounds known on A(n, D) for n up to 28, sharper than the general ones below where those are not tight.
# Column D starts at the length beside it. Source: A. E. Brouwer's table of general binary codes, which continues
# Best, Brouwer, MacWilliams, Odlyzko and Sloane, "Bounds for binary codes of length less than 25" (1978).
_FIRST_LENGTH_AND_SIZES = {
    4: (6, [4, 8, 16, 20, 40, 72, 144, 256, 512, 1024, 2048, 3276, 6552, 13104, 26168, 43688, 87333, 172361, 344308,
            599184, 1198368, 2396736, 4792950]),
    6: (9, [4, 6, 12, 24, 32, 64, 128, 256, 340, 673, 1237, 2279, 4096, 6941, 13674, 24106, 47538, 84260, 157285, 291269]),
    8: (12, [4, 4, 8, 16, 32, 36, 64, 128, 256, 512, 1024, 2048, 4096, 5421, 9275, 17099, 32151]),
    10: (15, [4, 4, 6, 10, 20, 40, 47, 84, 150, 268, 466, 836, 1585, 2817]),
    12: (18, [4, 4, 6, 8, 12, 24, 48, 55, 96, 169, 288]),
}  # fmt: skip
KNOWN_SIZES = {
    (first + row, distance): size
    for distance, (first, sizes) in _FIRST_LENGTH_AND_SIZES.items()
    for row, size in enumerate(sizes)
}
"""Upper bounds on A(n, D), by (n, D)."""

_LINEAR_PROGRAM_UP_TO = 256  # bits; beyond, its exact check takes too long for what it adds


@cache
def largest_min_distance(words: int, bits: int) -> int:
    """Return an upper bound on the minimal Hamming distance of any C >= 2 distinct words of d bits (C <= 2^d)."""
    distance = bits
    while distance > 1 and not _is_possible(words, bits, distance):
        distance -= 1
    return distance


def _is_possible(words: int, bits: int, distance: int) -> bool:
    """Ask the bounds, the cheapest first, whether `words` words of `bits` bits at `distance` are ruled out."""
    n, d = (bits, distance) if distance % 2 == 0 else (bits + 1, distance + 1)
    if plotkin_bound(n, d) < words or KNOWN_SIZES.get((n, d), words) < words or hamming_bound(n, d) < words:
        return False
    return n > _LINEAR_PROGRAM_UP_TO or delsarte_bound(n, d) >= words


def plotkin_bound(n: int, d: int) -> int:
    """Plotkin, for even d: 2 floor(d / (2d - n)) words if 2d > n, 4d if 2d = n; shortened to there from longer words."""
    if 2 * d > n:
        return 2 * (d // (2 * d - n))
    return 4 * d << (n - 2 * d)  # A(n, d) <= 2 A(n - 1, d)


def hamming_bound(n: int, d: int) -> int:
    """Sphere packing, for even d: balls of radius (d - 2) / 2 around words of n - 1 bits do not overlap."""
    return int(2 ** (n - 1) // sum(comb(n - 1, k) for k in range((d - 2) // 2 + 1)))
