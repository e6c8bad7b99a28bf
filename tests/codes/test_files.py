from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from proxyhash import InputError
from proxyhash.codes import pack
from proxyhash.codes.files import read_code_file

SIGNS = np.where(np.random.default_rng(0).random((6, 12)) < 0.5, -1, 1)


def test_signs_bits_and_packed_codes_are_read_as_the_same_codes(tmp_path: Path) -> None:
    np.savez(tmp_path / "signs.npz", codes=SIGNS)
    np.savez(tmp_path / "bits.npz", codes=(SIGNS > 0).astype(np.uint8))
    np.savez(tmp_path / "packed.npz", codes=pack(SIGNS), bits=12)
    savemat(tmp_path / "signs.mat", {"codes": SIGNS.astype(float)})
    for name in ("signs.npz", "bits.npz", "packed.npz", "signs.mat"):
        file = read_code_file(tmp_path / name)
        np.testing.assert_array_equal(file.codes, pack(SIGNS))
        assert (file.bits, file.labels, file.keys) == (12, None, None)


def test_packed_codes_without_their_length_have_whole_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "packed.npz", codes=pack(SIGNS))
    assert read_code_file(tmp_path / "packed.npz").bits == 16


def test_labels_and_keys_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", codes=SIGNS, labels=np.arange(6)[:, None], keys=[f"k{n}" for n in range(6)])
    file = read_code_file(tmp_path / "all.npz", required=("codes", "labels", "keys"))
    assert file.labels is not None
    assert file.labels.shape == (6,)
    assert file.keys == ["k0", "k1", "k2", "k3", "k4", "k5"]


def test_missing_arrays_and_python_objects_are_errors(tmp_path: Path) -> None:
    np.savez(tmp_path / "codes.npz", codes=SIGNS)
    with pytest.raises(InputError, match="has no array 'labels'; it holds codes"):
        read_code_file(tmp_path / "codes.npz", required=("codes", "labels"))
    savemat(tmp_path / "cells.mat", {"codes": np.array([{}, {}], dtype=object)})
    with pytest.raises(InputError, match="holds Python objects"):
        read_code_file(tmp_path / "cells.mat")
