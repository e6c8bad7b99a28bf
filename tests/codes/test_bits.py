import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxyhash import InputError, codes
from proxyhash.codes.bits import to_words


@given(arrays(np.bool_, st.tuples(st.integers(0, 5), st.integers(1, 200))))
def test_unpack_inverts_pack_for_every_representation_of_bits(on: np.ndarray) -> None:
    bits = on.shape[1]
    expected = np.where(on, 1, -1)
    for same in (
        on,
        on.astype(int),
        on.astype(float),
        expected,
        expected.astype(np.float32) * 0.3,
        expected.astype(np.int8),
    ):
        packed = codes.pack(same)
        assert packed.dtype == np.uint8
        assert packed.shape == (len(on), (bits + 7) // 8)
        np.testing.assert_array_equal(codes.unpack(packed, bits), expected)


@pytest.mark.parametrize("bits", [1, 7, 8, 9, 63, 64, 65, 4095, 4096])
def test_unpack_inverts_pack_for_every_number_of_bits(bits: int) -> None:
    signs = np.where(np.random.default_rng(bits).random((3, bits)) < 0.5, -1, 1)
    np.testing.assert_array_equal(codes.unpack(codes.pack(signs), bits), signs)
    assert not np.unpackbits(codes.pack(signs), axis=1, bitorder="little")[:, bits:].any()


def test_the_bit_order_by_hand() -> None:
    assert codes.pack([[1, -1, -1, -1, -1, -1, -1, -1, 1, 1]]).tolist() == [[1, 3]]


def test_zero_has_the_sign_plus_one() -> None:
    assert codes.pack([[-0.5, 0.0, -0.0, 2.0]]).tolist() == codes.pack([[-1, 1, 1, 1]]).tolist()
    assert codes.binarize([[0.0, 1.0], [0.0, 0.0]]).all()
    assert codes.pack(codes.binarize([[0.0, 0.0, 0.0]])).tolist() == [[7]]


def test_words_of_64_bit_codes_are_a_view_and_others_are_padded() -> None:
    packed = np.arange(24, dtype=np.uint8).reshape(3, 8)
    assert np.shares_memory(to_words(packed), packed)
    assert to_words(packed[:, :3]).tolist() == [[0x020100, 0x0A0908, 0x121110]]
    assert to_words(np.ones((2, 9), np.uint8)).shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: codes.pack(np.ones(3)), "must be a matrix"),
        (lambda: codes.pack([["a"]]), "of numbers or booleans"),
        (lambda: codes.pack(np.ones((2, 0))), "1 to 4096 bits, not 0"),
        (lambda: codes.pack(np.ones((1, 4097))), "1 to 4096 bits, not 4097"),
        (lambda: codes.pack([[1.0, np.nan]]), "not finite"),
        (lambda: codes.binarize([[np.inf]]), "finite numbers"),
        (lambda: codes.unpack(np.zeros((1, 2), np.uint8), 17), "17 bits take 3 bytes each, not 2"),
        (lambda: codes.unpack(np.zeros((1, 2)), 16), "must be packed"),
        (lambda: codes.unpack(np.zeros((1, 2), np.uint8), 0), "bits must be at least 1"),
    ],
)
def test_invalid_codes_are_errors(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=sentence):
        call()
