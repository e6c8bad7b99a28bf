from itertools import combinations

import numpy as np
import pytest

from proxyhash.proxies.bounds import largest_min_distance, least_max_cosine
from proxyhash.proxies.bounds.hamming import KNOWN_SIZES, delsarte_bound, hamming_bound, plotkin_bound


def largest_code(bits: int, distance: int) -> int:
    """Find A(bits, distance) by exhaustive search, for words of few bits."""

    def extend(size: int, candidates: list[int]) -> int:
        best = size
        for position, word in enumerate(candidates):
            if size + len(candidates) - position <= best:
                break
            later = [other for other in candidates[position + 1 :] if (word ^ other).bit_count() >= distance]
            best = max(best, extend(size + 1, later))
        return best

    return extend(1, [word for word in range(1, 2**bits) if word.bit_count() >= distance])


@pytest.mark.parametrize(("bits", "distance"), [(2, 2), (3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (6, 4), (6, 5), (7, 5)])
def test_no_bound_is_below_the_optimum_and_the_best_one_equals_it(bits: int, distance: int) -> None:
    words = largest_code(bits, distance)
    n, d = (bits, distance) if distance % 2 == 0 else (bits + 1, distance + 1)
    assert min(plotkin_bound(n, d), hamming_bound(n, d), delsarte_bound(n, d)) >= words
    assert largest_min_distance(words, bits) >= distance
    assert largest_min_distance(words + 1, bits) < distance


def test_delsarte_bound_is_valid_and_tight_for_perfect_codes() -> None:
    for (n, d), size in KNOWN_SIZES.items():
        assert delsarte_bound(n, d) >= size or n > 20  # beyond 20, the table holds upper bounds of other methods
    assert delsarte_bound(16, 6) == 256  # the Nordstrom-Robinson code
    assert delsarte_bound(24, 8) == 4096  # the Golay code
    assert delsarte_bound(16, 8) == 32  # the first-order Reed-Muller code


@pytest.mark.parametrize(
    ("classes", "bits", "bound"),
    [
        (10, 16, 8), (10, 24, 12), (10, 32, 17), (10, 48, 26), (21, 16, 8), (21, 32, 16), (21, 48, 24), (75, 16, 6),
        (75, 32, 15), (100, 16, 6), (100, 32, 14), (100, 64, 32), (750, 64, 28), (1000, 32, 12), (1000, 64, 28),
        (1000, 128, 61), (10_000, 64, 26), (21_841, 128, 58), (2, 5, 5), (2, 1, 1), (256, 8, 1), (128, 8, 2), (20, 9, 4),
        (21, 9, 3), (2, 4096, 4096),
    ],
)  # fmt: skip
def test_bounds_on_the_minimal_distance(classes: int, bits: int, bound: int) -> None:
    assert largest_min_distance(classes, bits) == bound


def test_more_classes_or_fewer_bits_never_raise_the_bound() -> None:
    table = np.array([[largest_min_distance(classes, bits) for bits in range(7, 24)] for classes in range(2, 129, 7)])
    assert (np.diff(table, axis=0) <= 0).all()
    assert (np.diff(table, axis=1) >= 0).all()


@pytest.mark.parametrize(
    ("points", "dimensions", "cosine"),
    [
        (2, 1, -1), (3, 1, 1), (3, 2, -1 / 2), (7, 2, np.cos(2 * np.pi / 7)), (4, 3, -1 / 3), (5, 3, 0), (6, 3, 0),
        (12, 3, 1 / np.sqrt(5)), (27, 6, 1 / 4), (56, 7, 1 / 3), (240, 8, 1 / 2), (196_560, 24, 1 / 2), (4600, 23, 1 / 3),
        (100, 64, 0),
    ],
)  # fmt: skip
def test_the_sphere_bound_meets_the_optima_it_is_known_to_meet(points: int, dimensions: int, cosine: float) -> None:
    assert least_max_cosine(points, dimensions) == pytest.approx(cosine, abs=1e-9)


def test_the_sphere_bound_rises_with_the_points_and_falls_with_the_dimensions() -> None:
    sizes = (3, 9, 17, 40, 200, 5000)
    table = np.array([[least_max_cosine(points, dimensions) for points in sizes] for dimensions in (2, 3, 8, 16, 64)])
    assert (np.diff(table, axis=1) >= 0).all()
    assert (np.diff(table, axis=0) <= 1e-12).all()


def test_corners_obey_the_sphere_bound_too() -> None:
    for classes, bits in combinations((2, 5, 12, 30, 64, 100), 2):
        if classes <= 2 ** min(bits, 20):
            assert largest_min_distance(classes, bits) <= bits * (1 - least_max_cosine(classes, bits)) / 2 + 1e-9
