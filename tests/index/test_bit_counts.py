import numpy as np
import pytest
from numba import njit

from proxyhash.index.clusters.bit_counts import add_differences, list_planes, reaches, reaches_far
from proxyhash.index.clusters.candidates import _BYTE_PLANES


@njit
def ask(blocks, lists, rounds, least):  # type: ignore[no-untyped-def]
    hidden = blocks[:, -1].copy()
    return reaches(blocks, hidden, 1, lists, 0, rounds, least), reaches_far(blocks, hidden, 1, lists, 0, rounds, least)


@njit
def listed(words, lists):  # type: ignore[no-untyped-def]
    found = 0
    for part in range(len(words)):
        found = list_planes(words[part], 256 * part, _BYTE_PLANES, lists, 1, found)
    return found


@njit
def differences(blocks, bits, sums):  # type: ignore[no-untyped-def]
    for part in range(2):
        add_differences(blocks, 1, part, bits[part], sums)


def blocks_with(lane: int, planes: list[int], rows: int = 65) -> np.ndarray:
    """Two blocks; in the second, one code has some bits."""
    blocks = np.zeros((2, rows, 4), np.uint64)
    blocks[1, planes, lane // 64] = np.uint64(1) << np.uint64(lane % 64)
    return blocks


@pytest.mark.parametrize("lane", [0, 63, 64, 255])
@pytest.mark.parametrize("count", [1, 7, 16, 63, 64])
def test_code_reaches_its_number_of_bits(lane: int, count: int) -> None:
    blocks, lists = blocks_with(lane, list(range(count))), (4 * np.arange(64, dtype=np.uint16))[None]
    for least in range(1, 65):
        assert ask(blocks, lists, 8, least) == (least <= count, least <= count)
    blocks[1, 64] = blocks[1, 0]  # an empty slot
    assert ask(blocks, lists, 8, 1) == (False, False)


def test_hundreds_of_bits_are_counted() -> None:
    blocks, lists = blocks_with(100, list(range(0, 300, 2)), 301), (4 * np.arange(304, dtype=np.uint16))[None]
    lists[0, 300:] = 1200  # the last plane, which marks empty slots
    answers = [ask(blocks, lists, 38, least)[1] for least in (1, 65, 150, 151, 300)]
    assert answers == [True, True, True, False, False]


def test_planes_are_listed_in_the_order_of_bits() -> None:
    words, lists = np.array([0x8000_0000_0001_0105, 0xFF], np.uint64), np.zeros((2, 136), np.uint16)
    expected = [0, 2, 8, 16, 63, *range(64, 72)]
    assert listed(words, lists) == len(expected)
    assert (lists[1, : len(expected)] // 4).tolist() == expected
    assert not lists[0].any()


def test_differences_of_both_words_add_up() -> None:
    blocks, sums = blocks_with(70, [0, 5, 64, 100], 129), np.zeros((13, 4), np.uint64)
    bits = np.zeros((2, 64), np.uint64)
    bits[0, 5] = bits[1, 63] = 2**64 - 1  # the query has one bit of that code, and one that it has not
    differences(blocks, bits, sums)
    distance = [
        sum(int(sums[level, lane // 64]) >> (lane % 64) << level & 1 << level for level in range(13)) for lane in range(256)
    ]
    assert distance == [4 if lane == 70 else 2 for lane in range(256)]
