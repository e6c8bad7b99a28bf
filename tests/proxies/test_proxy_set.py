import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from proxyhash import InputError, ProxySet, design_proxies


@pytest.fixture(scope="module")
def proxies() -> ProxySet:
    half = np.random.default_rng(0).random((9, 9))
    return design_proxies(9, 12, "shclm", half + half.T, seed=7)


def test_a_saved_set_loads_back_the_same(proxies: ProxySet, tmp_path: Path) -> None:
    path = tmp_path / "new" / "set.safetensors"
    proxies.save(path)
    loaded = ProxySet.load(path)
    np.testing.assert_array_equal(loaded.weights, proxies.weights)
    np.testing.assert_array_equal(loaded.quality.nearest_class, proxies.quality.nearest_class)
    np.testing.assert_array_equal(loaded.quality.nearest_distance, proxies.quality.nearest_distance)
    assert loaded.as_dict() == proxies.as_dict()
    assert str(loaded) == str(proxies)
    assert [file.name for file in path.parent.iterdir()] == ["set.safetensors"]


def test_an_undefined_correlation_survives_the_file(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="equally far apart"):
        pair = design_proxies(2, 4, similarity=np.ones((2, 2)))
    pair.save(tmp_path / "pair.safetensors")
    loaded = ProxySet.load(tmp_path / "pair.safetensors").quality.assignment
    assert loaded is not None
    assert np.isnan(loaded.correlation)


def test_repr_and_table_show_the_quality(proxies: ProxySet) -> None:
    assert repr(proxies).startswith("ProxySet(kind='shclm', classes=9, bits=12, seed=7, min_distance=")
    assert "\n" not in repr(proxies)
    text = str(proxies)
    for name in ("minimal distance", "nearest other class", "largest cosine", "constant bits", "similarity correlation"):
        assert name in text


def test_files_that_are_not_proxy_sets_are_errors(proxies: ProxySet, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    save_file({"weights": proxies.weights.copy()}, tmp_path / "other.safetensors")
    proxies.save(tmp_path / "cut.safetensors")
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-10])
    flipped = bytearray(whole)
    position = whole.index(proxies.weights.tobytes())
    flipped[position + 3] ^= 0x80  # one sign
    (tmp_path / "flipped.safetensors").write_bytes(flipped)
    for name, reason in [
        ("text", "is not a proxy set"),
        ("empty", "is not a proxy set"),
        ("other.safetensors", "is not a file of the format proxyhash.proxies/2"),
        ("cut.safetensors", "is not a proxy set"),
        ("flipped.safetensors", "do not match their checksum"),
        ("absent", "There is no file"),
        (".", "There is no file"),
    ]:
        with pytest.raises(InputError, match=reason) as caught:
            ProxySet.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_file_without_its_numbers_is_refused(proxies: ProxySet, tmp_path: Path) -> None:
    path = tmp_path / "set.safetensors"
    proxies.save(path)
    save_file(load_file(path), path, metadata={"format": "proxyhash.proxies/1"})
    with pytest.raises(InputError, match="it lacks 'sha256'"):
        ProxySet.load(path)


def test_failed_save_leaves_no_file(proxies: ProxySet, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "folder", tmp_path / "file" / "set.safetensors"):
        with pytest.raises(InputError, match="Cannot write"):
            proxies.save(path)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder"]


def rewrite(path: Path, header: dict[str, str], **tensors: np.ndarray) -> None:
    """Write other fields and tensors, with the checksum of the weights that belongs to them."""
    with safe_open(path, framework="np") as handle:
        before = handle.metadata()
    content = {**load_file(path), **tensors}
    before |= {"format": "proxyhash.proxies/1", "sha256": hashlib.sha256(content["weights"].tobytes()).hexdigest()}
    save_file(content, path, metadata=before | header)


@pytest.mark.parametrize(
    ("header", "tensors", "reason"),
    [
        ({}, {"weights": np.full((9, 12), np.nan, np.float32)}, "its weights hold a number that is not finite"),
        ({}, {"weights": np.ones((9, 12), np.float64)}, "its weights are not a float32 matrix"),
        ({}, {"nearest_class": np.zeros(3, np.int64)}, "nearest_class has not one number for each class"),
        ({}, {"nearest_distance": np.zeros(9, np.int64)}, "nearest_distance has not one number for each class"),
        ({"quality": "[" * 50_000}, {}, "is not a proxy set"),
        ({"quality": "[1]"}, {}, "is not a proxy set"),
        ({"quality": '{"min_distance": "far"}'}, {}, "its quality is not given in numbers"),
        ({"seed": "one"}, {}, "is not a proxy set"),
        ({"format": "proxyhash.proxies/2", "seed": "8"}, {}, "its content does not match its checksum"),
        ({"format": "proxyhash.proxies/3", "requires": "0.8"}, {}, "needs proxyhash 0.8 or later"),
    ],
)
def test_wrong_content_is_refused_in_one_sentence(
    proxies: ProxySet, tmp_path: Path, header: dict[str, str], tensors: dict[str, np.ndarray], reason: str
) -> None:
    path = tmp_path / "set.safetensors"
    proxies.save(path)
    rewrite(path, header, **tensors)
    with pytest.raises(InputError, match=reason) as caught:
        ProxySet.load(path)
    assert "\n" not in str(caught.value)
