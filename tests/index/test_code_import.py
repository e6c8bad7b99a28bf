"""Import of codes from files."""

from pathlib import Path

import numpy as np
import pytest

from proxyhash import InputError, codes
from proxyhash.index.code_import import read_codes


def test_npz_files_of_codes_are_read(tmp_path: Path) -> None:
    signs = np.where(np.random.default_rng(0).random((6, 20)) < 0.5, 1, -1)
    np.savez(tmp_path / "signs.npz", codes=signs, labels=np.arange(6))
    packed, bits, keys, labels, *_ = read_codes(tmp_path / "signs.npz")
    np.testing.assert_array_equal(codes.unpack(packed, 20), signs)
    assert (bits, keys[5], labels) == (20, "signs/5", [("0",), ("1",), ("2",), ("3",), ("4",), ("5",)])
    np.savez(tmp_path / "packed.npz", codes=packed, bits=np.int64(20), keys=np.array(list("abcdef")), labels=np.eye(6, 3))
    again, bits, keys, labels, *_ = read_codes(tmp_path / "packed.npz")
    np.testing.assert_array_equal(again, packed)
    assert (bits, keys, labels) == (20, list("abcdef"), [("0",), ("1",), ("2",), (), (), ()])
    np.savez(tmp_path / "none.npz", other=packed)
    np.savez(tmp_path / "empty.npz", codes=packed[:0])
    np.savez(tmp_path / "pickled.npz", codes=np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "single.npy", packed)
    (tmp_path / "text.npz").write_text("hello")
    for name, sentence in [
        ("absent.npz", "There is no file"),
        ("none.npz", "has no array 'codes'; it holds other"),
        ("empty.npz", "holds no codes"),
        ("pickled.npz", "holds pickled objects"),
        ("single.npy", "holds one array without a name"),
        ("text.npz", "text.npz cannot be read as .npz"),
    ]:
        with pytest.raises(InputError, match=sentence):
            read_codes(tmp_path / name)
