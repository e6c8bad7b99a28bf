"""Few classes for many bits: Levenshtein's codes, which meet Plotkin's bound, and Hadamard codes just beyond it."""

from collections.abc import Iterator

from proxyhash.proxies.constructions.hadamard import Signs, biorthogonal_code, shortened_code, simplex_code


def plotkin_codes(classes: int, bits: int) -> Iterator[list[Signs]]:
    """Yield codes of at least C words and d bits, the largest distance first, each as blocks of columns side by side.

    Every block holds at least C words that are far apart in it whichever C are taken, so words may be chosen and matched
    block by block. A code of odd distance is one of the next even distance and one more bit, without its last bit.
    """
    for distance in range(bits, 0, -1):
        length, even = (bits, distance) if distance % 2 == 0 else (bits + 1, distance + 1)
        if 2 * even <= length:
            return
        words = 2 * (even // (2 * even - length))
        blocks = levenshtein_blocks(words, length, even) if words >= classes else None
        if blocks:
            yield without_last_bits(blocks, length - bits)


def biorthogonal_codes(classes: int, bits: int) -> Iterator[Signs]:
    """Yield Hadamard codes of at least C words cut to d bits, the largest distance first: each bit cut costs one."""
    orders = [order for order in (1, 2, *range(4, bits + bits // 4 + 4, 4)) if bits <= order and 2 * order >= classes]
    for order in sorted(orders):
        code = biorthogonal_code(order)
        if code is not None:
            yield code[:, :bits]


def levenshtein_blocks(words: int, length: int, distance: int) -> list[Signs] | None:
    """Return a code of 2 k words that meets Plotkin's bound for even `distance` > `length` / 2, or None without matrices.

    With a = d (2 k + 1) - n (k + 1) and b = k n - d (2 k - 1), n = (2 k - 1) a + (2 k + 1) b and d = k a + (k + 1) b:
    shortened Hadamard codes of orders 4 k and 4 k + 4 supply two units of a or of b each, simplex codes of half the order
    one.
    """
    k = words // 2
    a, b = distance * (2 * k + 1) - length * (k + 1), k * length - distance * (2 * k - 1)
    blocks = [*_units(a, k), *_units(b, k + 1)]
    return None if any(block is None for block in blocks) else [block for block in blocks if block is not None]


def _units(count: int, half: int) -> list[Signs | None]:
    """Return codes of at least 2 `half` words with length `count` (2 half - 1) and distance `count` half in all."""
    pairs, single = divmod(count, 2)
    if half % 2 == 0 or half == 1:  # a simplex code of order 2 half may exist, and stands for one unit
        return [simplex_code(2 * half)] * count
    return [shortened_code(4 * half)] * pairs + [None] * single


def without_last_bits(blocks: list[Signs], bits: int) -> list[Signs]:
    """Cut `bits` columns, 0 or 1, from the last block."""
    kept = [*blocks[:-1], blocks[-1][:, : blocks[-1].shape[1] - bits]]
    return [block for block in kept if block.shape[1]]
