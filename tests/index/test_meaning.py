"""Calibration and no match, re-ranking of ties, near duplicates, approximate search, imports."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helpers.codes import clustered_codes, make_keys
from proxyhash import InputError, codes
from proxyhash.index import Calibration, Index, calibrate
from proxyhash.index.code_import import read_codes
from proxyhash.index.contact_sheet import SIDE, Picture, draw_sheet
from proxyhash.index.duplicates import find_duplicates
from proxyhash.index.hits import asymmetric_distances
from proxyhash.index.local import transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.model_store import model_dir


def test_precision_is_the_share_of_alike_pairs_and_never_rises() -> None:
    """One query at 0: distances 0, 1, 1, 2, 4; alike, alike, not, alike, not. 1/2 at 1 and 1 at 2 are pooled to 2/3."""
    query, database = np.zeros((1, 1), np.uint8), np.array([[0], [1], [2], [3], [15]], np.uint8)
    found = calibrate(query, [0], database, [0, 0, 1, 0, 1], bits=8)
    np.testing.assert_allclose(found.precision, [1, 2 / 3, 2 / 3, 0, 0, 0, 0, 0, 0])
    assert found.pairs.tolist() == [1, 2, 1, 0, 1, 0, 0, 0, 0]
    assert (found.radius(), found.radius(0.9), found.radius(1.1)) == (2, 0, -1)
    np.testing.assert_allclose(found.at([0, 4]), [1, 0])


def test_a_calibration_is_kept_with_its_model(tmp_path: Path) -> None:
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


def test_queries_that_are_too_far_have_no_match(tmp_path: Path, model: Path) -> None:
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


@given(st.integers(0, 99), st.sampled_from([3, 8, 40, 64, 70]))
def test_asymmetric_distances_order_as_inner_products(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    nu, stored = random.uniform(-1, 1, (2, bits)).astype(np.float32), random.random((2, 9, bits)) < 0.5
    words = np.stack([codes.bits.to_words(codes.pack(part)).T for part in stored])
    found = asymmetric_distances(nu, np.ascontiguousarray(words))
    differs = (nu[:, None] >= 0) != stored
    np.testing.assert_allclose(found, (np.abs(nu)[:, None] * differs).sum(2), atol=1e-5)


def test_ties_are_settled_by_how_sure_the_query_is(tmp_path: Path) -> None:
    """Both items are one bit away; the second differs in the bit that the query is least sure of."""
    with Index.open(tmp_path / "i", bits=8) as index:
        index.add(np.array([[0b0001], [0b0010], [0b1111]], np.uint8), ["sure", "unsure", "far"])
        nu = np.array([[-0.9, -0.1, -0.8, -0.8, -1, -1, -1, -1]], np.float32)
        assert index.search(nu, 2)[0].keys == ["sure", "unsure"]
        found = index.search(nu, 2, rerank=3)[0]
        assert [(match.key, match.score) for match in found] == [("unsure", 0.1), ("sure", 0.9)]
        assert index.search(nu, 1, rerank=2)[0].keys == ["unsure"]
        with pytest.raises(InputError, match="Re-ranking needs images or real-valued embeddings"):
            index.search(np.zeros((1, 1), np.uint8), 2, rerank=3)


def test_a_search_can_stop_at_a_radius_and_return_codes(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=12) as index:
        stored = np.array([[0b0000, 0], [0b0001, 0], [0b0111, 0b1000]], np.uint8)
        index.add(stored, ["zero", "one", "four"])
        nu = np.full((1, 12), -1.0, np.float32)
        for rerank in (None, 3):
            found = index.search(nu, 3, rerank=rerank, radius=1, with_codes=True)[0]
            assert [(match.key, match.code) for match in found] == [("zero", b"\0\0"), ("one", b"\1\0")]
        assert index.search(nu, 3, with_codes=True)[0][2].code == b"\x07\x08"
        assert index.search(nu, 1)[0][0].code is None
        assert index.search(nu, 1, with_codes=True)[0].as_dict()["matches"] == [
            {"key": "zero", "distance": 0, "item_id": 0, "labels": (), "code": "0000"}
        ]


def components(stored: np.ndarray, radius: int) -> set[frozenset[str]]:
    """Connect all pairs within the radius, by comparing every one."""
    clusters = {key: {key} for key in make_keys(len(stored))}
    apart = codes.hamming_distances(stored, stored)
    for a, b in combinations(range(len(stored)), 2):
        if apart[a, b] <= radius:
            one, two = clusters[make_keys(1, a)[0]], clusters[make_keys(1, b)[0]]
            if one is not two:
                one |= two
                for key in two:
                    clusters[key] = one
    return {frozenset(cluster) for cluster in clusters.values() if len(cluster) > 1}


@pytest.mark.parametrize("radius", [0, 1, 2, 6])
@pytest.mark.parametrize(("width", "in_clusters"), [(2, False), (2, True), (12, False), (12, True)])
def test_near_duplicates_are_the_connected_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, radius: int, width: int, in_clusters: bool
) -> None:
    monkeypatch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 100 if in_clusters else 10**9)
    monkeypatch.setattr("proxyhash.index.clusters.centroids.MAX_SCAN_FRACTION", 1.0)
    stored = clustered_codes(250, width, 3, centroids=30, flips=0.03)
    with LocalIndex.open_folder(tmp_path / "i", bits=8 * width) as index:
        index.add(stored[:200], make_keys(200))
        index.snapshots.latest()
        index.add(stored[200:], make_keys(50, 200))
        assert index.info().plan.endswith("clusters") == in_clusters
        found = find_duplicates(index, radius)
        assert {frozenset(cluster.keys) for cluster in found} == components(stored, radius)
        assert [len(cluster.keys) for cluster in found] == sorted((len(cluster.keys) for cluster in found), reverse=True)
        assert repr(found[0]).startswith(f"NearDuplicates({len(found[0].keys)} like 'item/")


def test_an_empty_index_has_no_near_duplicates(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        assert find_duplicates(index, 3) == []
        with pytest.raises(InputError, match="radius must be at least 0"):
            find_duplicates(index, -1)


def test_the_approximate_mode_says_what_it_is_and_with_all_groups_finds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 500)
    monkeypatch.setattr("proxyhash.index.clusters.centroids.MAX_SCAN_FRACTION", 1.0)
    monkeypatch.setattr("proxyhash.index.local.blocks.CODES_PER_BLOCK", 256)
    stored, queries = clustered_codes(2000, 4, 0), clustered_codes(20, 4, 1)
    with LocalIndex.open_folder(tmp_path / "i", bits=32) as index:
        with pytest.raises(InputError, match="This index is scanned"):
            index.search(queries, 5, nprobe=3)
        index.add(stored[:1990], make_keys(1990))
        index.snapshots.latest()
        index.add(stored[1990:], make_keys(10, 1990))
        exact, all_groups = index.search(queries, 5), index.search(queries, 5, nprobe=10**6)
        assert {matches.exact for matches in all_groups} == {False}
        assert [[m.distance for m in row] for row in all_groups] == [[m.distance for m in row] for row in exact]
        nearest = index.search(queries, 5, nprobe=1)
        hits = [len(set(a.keys) & set(b.keys)) for a, b in zip(exact, nearest, strict=True)]
        assert sum(hits) > 50  # of 100


def test_codes_from_anywhere_are_read(tmp_path: Path) -> None:
    signs = np.where(np.random.default_rng(0).random((6, 20)) < 0.5, 1, -1)
    np.savez(tmp_path / "signs.npz", codes=signs, labels=np.arange(6))
    packed, bits, keys, labels = read_codes(tmp_path / "signs.npz")
    np.testing.assert_array_equal(codes.unpack(packed, 20), signs)
    assert (bits, keys[5], labels) == (20, "signs/5", ["0", "1", "2", "3", "4", "5"])
    np.savez(tmp_path / "packed.npz", codes=packed, bits=np.int64(20), keys=np.array(list("abcdef")), labels=np.eye(6, 3))
    again, bits, keys, labels = read_codes(tmp_path / "packed.npz")
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
        ("pickled.npz", "cannot be read as .npz"),
        ("single.npy", "holds one array without a name"),
        ("text.npz", "cannot be read as .npz"),
    ]:
        with pytest.raises(InputError, match=sentence):
            read_codes(tmp_path / name)


def test_a_contact_sheet_shows_queries_and_matches(tmp_path: Path) -> None:
    red, blue = tmp_path / "red.png", tmp_path / "blue.png"
    Image.new("RGB", (40, 40), "red").save(red)
    Image.new("RGB", (80, 40), "blue").save(blue)
    row = [
        Picture(red, "red.png", query=True),
        Picture(blue, "a/very/long/name/of/a/file/blue.png", "3 bits"),
        Picture(None, "c"),
    ]
    draw_sheet([row, row[:1]], tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as opened:
        sheet = opened.convert("RGB")
    assert sheet.width > 3 * SIDE
    colors = {sheet.getpixel((SIDE // 2, SIDE // 2)), sheet.getpixel((SIDE + SIDE // 2 + 16, SIDE // 2))}
    assert colors == {(255, 0, 0), (0, 0, 255)}
    many = [Picture(red, "q", query=True), *[Picture(blue, "m")] * 25]
    draw_sheet([many], tmp_path / "many.jpg")
    with Image.open(tmp_path / "many.jpg") as picture:
        assert picture.height > 3 * SIDE
    with pytest.raises(InputError, match=r"must end in .png or .jpg"):
        draw_sheet([row], tmp_path / "sheet.gif")
