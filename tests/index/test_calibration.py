"""Calibration, and queries without a match."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.models import rewrite_json
from proxyhash import InputError
from proxyhash.index import Calibration, calibrate
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.model_store import copy_model, model_dir
from proxyhash.models.hasher import Hasher


def test_precision_is_the_share_of_alike_pairs_and_never_rises() -> None:
    """One query at 0: distances 0, 1, 1, 2, 4; alike, alike, not, alike, not. 1/2 at 1 and 1 at 2 are pooled to 2/3."""
    query, database = np.zeros((1, 1), np.uint8), np.array([[0], [1], [2], [3], [15]], np.uint8)
    found = calibrate(query, [0], database, [0, 0, 1, 0, 1], bits=8)
    np.testing.assert_allclose(found.precision, [1, 2 / 3, 2 / 3, 0, 0, 0, 0, 0, 0])
    assert found.pairs.tolist() == [1, 2, 1, 0, 1, 0, 0, 0, 0]
    assert (found.radius(), found.radius(0.9), found.radius(1.1)) == (2, 0, -1)
    np.testing.assert_allclose(found.at([0, 4]), [1, 0])


def test_calibration_is_stored_with_its_model(tmp_path: Path) -> None:
    assert Calibration.load(tmp_path, 8) is None
    found = calibrate(clustered_codes(20, 1, 0), np.arange(20) % 3, clustered_codes(50, 1, 1), np.arange(50) % 3, bits=8)
    found.save(tmp_path)
    again = Calibration.load(tmp_path, 8)
    assert again is not None
    np.testing.assert_array_equal(again.precision, found.precision)
    with pytest.raises(InputError, match="does not fit codes of 16 bits"):
        Calibration.load(tmp_path, 16)
    (tmp_path / "calibration.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        Calibration.load(tmp_path, 8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": [7.5, 0.5, 0.0]}, "precision is from 0 to 1"),
        ({"precision": [1.0, -0.5, -1.0]}, "precision is from 0 to 1"),
        ({"precision": [1.0, float("nan"), 0.0]}, "it holds other values than numbers"),
        ({"precision": [float("inf"), 1.0, 0.0]}, "it holds other values than numbers"),
        ({"precision": [0.0, 0.5, 1.0]}, "never rises with distance"),
        ({"precision": [1.0, 0.5]}, "does not fit codes of 2 bits"),
        ({"precision": [[1.0], [0.5], [0.0]]}, "it holds other values than numbers"),
        ({"precision": "1.0"}, "does not fit codes of 2 bits"),
        ({"precision": None}, "does not fit codes of 2 bits"),
        ({"pairs": [1, -2, 3]}, "numbers of pairs are not negative"),
        ({"pairs": [1, 2.5, 3]}, "it holds other values than numbers"),
        ({"pairs": [1, 10**30, 3]}, "it holds other values than numbers"),
        ({"pairs": [1, True, 3]}, "it holds other values than numbers"),
        ({"format": 7}, "is not a file of the format proxyhash.calibration/2"),
        ({"format": "proxyhash.calibration/3", "requires": "0.9"}, "needs proxyhash 0.9 or later"),
    ],
)
def test_values_that_nobody_measured_are_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    Calibration(np.array([1.0, 0.5, 0.0]), np.array([1, 2, 3])).save(tmp_path)
    rewrite_json(tmp_path / "calibration.json", **changes)
    with pytest.raises(InputError, match=f"{reason}.*; calibrate the model again."):
        Calibration.load(tmp_path, 2)


def test_a_changed_calibration_is_found_by_its_checksum(tmp_path: Path) -> None:
    Calibration(np.array([1.0, 0.5, 0.0]), np.array([1, 2, 3])).save(tmp_path)
    path = tmp_path / "calibration.json"
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(InputError, match=r"its content does not match its checksum; calibrate the model again."):
        Calibration.load(tmp_path, 2)


def test_distant_queries_have_no_match(tmp_path: Path, model: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", model=model) as index:
        index.add(np.zeros((3, 4), np.uint8), make_keys(3))
        assert index.search(np.zeros((1, 4), np.uint8))[0].matched is None
        assert index.model is not None
        precision = np.linspace(1, 0, 33)
        Calibration(precision, np.ones(33, np.int64)).save(model_dir(index.folder, index.model))
        near, far = index.search(np.array([[7, 0, 0, 0], [255, 255, 255, 0]], np.uint8))
        assert (near.matched, far.matched) == (True, False)
        assert near[0].expected_precision == pytest.approx(1 - 3 / 32)
        assert index.search(np.array([[7, 0, 0, 0]], np.uint8), threshold=0.95)[0].matched is False
        assert index.info().calibrated


def test_calibration_in_an_index_is_replaced_as_a_whole(tmp_path: Path, model: Path) -> None:
    """A file that is written in place would be torn by a loss of power."""
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (tmp_path / "i").mkdir()
    target = model_dir(tmp_path / "i", copy_model(Hasher.load(folder), tmp_path / "i")) / "calibration.json"
    for content in ("first", "second"):
        (folder / "calibration.json").write_text(content)
        copy_model(Hasher.load(folder), tmp_path / "i")
        assert target.read_text() == content
        if content == "first":
            os.link(target, tmp_path / "same file")
    assert (tmp_path / "same file").read_text() == "first"
