import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from proxyhash import InputError
from proxyhash.codes import pack
from proxyhash.codes.files import read_code_file, write_code_file

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


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"bits": "twelve"}, "bits must be one whole number, not 'twelve'."),
        ({"bits": np.nan}, "bits must be one whole number, not nan."),
        ({"bits": np.inf}, "bits must be one whole number, not inf."),
        ({"bits": 11.5}, "bits must be one whole number, not 11.5."),
        ({"bits": [8, 4]}, "bits must be one whole number, not [8, 4]."),
        ({"bits": True}, "bits must be one whole number, not True."),
        ({"bits": 0}, "codes of 0 bits do not take 2 bytes each."),
        ({"bits": -12}, "codes of -12 bits do not take 2 bytes each."),
        ({"bits": 10**15}, "codes of 1000000000000000 bits do not take 2 bytes each."),
        ({"codes": np.uint8(7)}, "codes must be a matrix (items, bits or bytes), not of shape ()."),
        ({"codes": np.zeros(3, np.uint8)}, "codes must be a matrix (items, bits or bytes), not of shape (3,)."),
        ({"codes": np.zeros((3, 0), np.uint8)}, "codes must be a matrix (items, bits or bytes), not of shape (3, 0)."),
        ({"codes": np.array([["a", "b"]])}, "Codes must be a matrix (items, bits) of numbers or booleans"),
        ({"codes": np.full((6, 12), np.nan)}, "Codes hold a value that is not finite."),
        ({"labels": np.int64(3)}, "labels must have one row for each of the 6 codes, not ()."),
        ({"labels": np.arange(5)}, "labels must have one row for each of the 6 codes, not (5,)."),
        ({"keys": np.array("key")}, "keys must have one row for each of the 6 codes, not ()."),
        ({"keys": np.array(["a"])}, "keys must have one row for each of the 6 codes, not (1,)."),
    ],
)
def test_wrong_arrays_are_refused_in_one_sentence(tmp_path: Path, arrays: dict[str, object], sentence: str) -> None:
    np.savez(tmp_path / "codes.npz", **{"codes": pack(SIGNS), **arrays})  # type: ignore[arg-type]
    with pytest.raises(InputError) as error:
        read_code_file(tmp_path / "codes.npz")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_members_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "codes.npz", codes=SIGNS)
    with zipfile.ZipFile(tmp_path / "codes.npz", "a") as archive:
        archive.writestr("labels", b"garbage")
    with pytest.raises(InputError, match=r"holds 'labels', which is not an array."):
        read_code_file(tmp_path / "codes.npz")
    with zipfile.ZipFile(tmp_path / "codes.npz", "w") as archive:
        archive.writestr("codes.npy", b"\x93NUMPY\x01\x00\xff\xffgarbage")
    with pytest.raises(InputError, match=r"cannot be read as .npz: "):
        read_code_file(tmp_path / "codes.npz")


def test_written_codes_are_read_and_a_change_is_found(tmp_path: Path) -> None:
    path = tmp_path / "codes.npz"
    write_code_file(path, pack(SIGNS), 12, list("abcdef"))
    file = read_code_file(path)
    np.testing.assert_array_equal(file.codes, pack(SIGNS))
    assert (file.bits, file.keys) == (12, list("abcdef"))
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, "codes": arrays["codes"] ^ 1})
    with pytest.raises(InputError, match="is damaged: its checksum differs; encode the images again"):
        read_code_file(path)


def test_codes_of_a_later_release_name_it(tmp_path: Path) -> None:
    header = json.dumps({"format": "proxyhash.codes/2", "requires": "0.9"})
    np.savez(tmp_path / "codes.npz", codes=SIGNS, header=header, sha256="0")
    with pytest.raises(InputError, match=r"has the format proxyhash.codes/2 and needs proxyhash 0.9 or later."):
        read_code_file(tmp_path / "codes.npz")
