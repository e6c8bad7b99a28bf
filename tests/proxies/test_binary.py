from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxyhash.proxies.binary import bit_means, distinct_corners, is_binary, sign


def test_sign_of_zero_is_one() -> None:
    np.testing.assert_array_equal(sign(np.array([-0.5, -0.0, 0.0, 2.0])), [-1, 1, 1, 1])


@given(st.data())
def test_corners_are_distinct_whatever_the_points(data: st.DataObject) -> None:
    bits = data.draw(st.integers(1, 5))
    classes = data.draw(st.integers(1, 2**bits))
    points = data.draw(arrays(float, (classes, bits), elements=st.floats(-2, 2)))
    corners = distinct_corners(points)
    assert is_binary(corners)
    assert len(np.unique(corners, axis=0)) == classes


def test_distinct_signs_are_not_changed() -> None:
    points = np.array(list(product((-0.2, 3.0), repeat=3)))
    np.testing.assert_array_equal(distinct_corners(points), sign(points))


def test_of_two_classes_at_a_corner_the_farther_moves_to_the_nearest_free_one() -> None:
    points = np.array([[0.9, 0.1, 0.8], [1.0, 1.0, 1.0], [0.9, -0.1, 0.8]])
    # 0 and 1 share (+,+,+), 1 is nearer to it; 0 would flip its second bit, but (+,-,+) is taken by 2; next is the third.
    np.testing.assert_array_equal(distinct_corners(points), [[1, 1, -1], [1, 1, 1], [1, -1, 1]])


def test_all_corners_are_used_for_as_many_classes() -> None:
    corners = distinct_corners(np.ones((256, 8)))
    assert len(np.unique(corners, axis=0)) == 256


def test_bit_means_by_hand() -> None:
    np.testing.assert_array_equal(bit_means(np.array([[0.1, -5.0], [2.0, 3.0]])), [1, 0])
