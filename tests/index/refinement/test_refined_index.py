"""Indexes with a refinement: creation, search, and all that changes their items."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from helpers.images import save_image
from helpers.models import load_encoder, make_model, make_vector_model
from proxyhash import Hasher, Index, InputError
from proxyhash.data import SkippedItems
from proxyhash.data.vectors import read_vectors
from proxyhash.index.backup import backup, restore
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local import item_arrays
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.refinement import storage
from proxyhash.index.refinement.backfill import refine_index
from proxyhash.index.refinement.refiner import KINDS, Kind
from proxyhash.index.refinement.storage import features_name, rows_name
from proxyhash.index.salvage import salvage
from proxyhash.index.upgrade import upgrade
from proxyhash.index.vector_sync import add_vectors
from proxyhash.models.hasher import Hasher as TorchHasher

WIDTH, BITS, COUNT = 24, 8, 300
VECTORS = np.random.default_rng(0).normal(size=(COUNT, WIDTH)).astype(np.float32)
KEYS = [f"key {row}" for row in range(COUNT)]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    make_vector_model(WIDTH, BITS, 0, folder / "one")
    make_vector_model(WIDTH, 3, 1, folder / "two")
    return folder


@pytest.fixture(scope="module")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model of images whose codes of two bits tie all the time."""
    return make_model(2, 0, tmp_path_factory.mktemp("models") / "short")


@pytest.fixture
def many_photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    for number in range(40):
        save_image(random.integers(0, 256, (16, 16, 3), dtype=np.uint8), tmp_path / "many" / "cats" / f"{number:02}.png")
    return tmp_path / "many"


def make_index(folder: Path, encoders: Path, refine: Kind = "code") -> LocalIndex:
    index = LocalIndex.open_folder(folder, model=encoders / "one", refine=refine)
    index.add(VECTORS, KEYS)
    return index


def rows_by_key(index: LocalIndex) -> dict[str, bytes]:
    item_ids, rows = item_arrays.read_array(index.store, rows_name(index.store.active_version))
    keys = {item.item_id: item.key for item in index.list_items(limit=10_000)}
    return {keys[item_id]: row.tobytes() for item_id, row in zip(item_ids.tolist(), rows, strict=True)}


def finds_itself(index: Index, rows: Sequence[int] = range(0, COUNT, 7)) -> bool:
    found = index.search(VECTORS[list(rows)], 3)
    return all(matches.refined == "all" and matches[0].key == KEYS[row] for row, matches in zip(rows, found, strict=True))


def test_an_indexed_image_finds_itself_first_among_equal_codes(tmp_path: Path, short_model: Path, many_photos: Path) -> None:
    files = sorted(many_photos.rglob("*.png"))
    with Index.open(tmp_path / "i", model=short_model, refine="code") as index:
        add_folder(index, many_photos, SkippedItems())
        plain, refined = index.search(files, 3, refine=False), index.search(files, 3)
        assert any(matches[0].path != file for file, matches in zip(files, plain, strict=True))
        for file, matches in zip(files, refined, strict=True):
            assert (matches[0].path, matches[0].distance, matches[0].refinement) == (file.resolve(), 0, 0)
            assert matches.refined == "all"
        assert all(matches.refined is None and matches[0].refinement is None for matches in plain)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_orders_ties_by_its_rows(tmp_path: Path, encoders: Path, kind: Kind) -> None:
    with make_index(tmp_path / "i", encoders, kind) as index:
        assert finds_itself(index)
        assert (index.info().refinement, index.info().refined_items) == (kind, COUNT)
        everything = index.range_search(VECTORS[:2], BITS)
        for matches in everything:
            assert len(matches) == COUNT
            order = [(match.distance, match.refinement, match.item_id) for match in matches]
            assert order == sorted(order)


def test_without_refinement_nothing_changes(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "refined", encoders) as refined, Index.open(tmp_path / "i", model=encoders / "one") as plain:
        plain.add(VECTORS, KEYS)
        expected = plain.search(VECTORS, 20)
        assert refined.search(VECTORS, 20, refine=False) == expected
        codes = load_encoder(encoders / "one").encode(VECTORS)
        assert [matches.matches for matches in refined.search(codes, 20)] == [matches.matches for matches in expected]
        assert [[match.distance for match in matches] for matches in refined.search(VECTORS, 20)] == [
            [match.distance for match in matches] for matches in expected
        ]


def test_items_added_by_code_come_last_in_their_tie(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        code = index.code(KEYS[5])
        index.add(np.repeat(code, 2, axis=0), ["by code 1", "by code 2"])
        index.add(VECTORS[5:6], ["again"])
        matches = list(index.range_search(VECTORS[5:6], 0)[0])
        assert [match.key for match in matches[:2]] == [KEYS[5], "again"]
        assert [match.key for match in matches[-2:]] == ["by code 1", "by code 2"]
        assert [match.refinement for match in matches[-2:]] == [None, None]


def test_what_cannot_be_refined_is_said(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        with pytest.raises(InputError, match="needs images, vectors or keys as queries"):
            index.search(index.code(KEYS[0]), 3, refine=True)
        with pytest.raises(InputError, match="leave out either it, or rerank and refine"):
            index.search(VECTORS[:1], 3, oversample=2, rerank=10)
    with pytest.raises(InputError, match=r"has the refinement code; to change it, run: .* --kind int8"):
        Index.open(tmp_path / "i", refine="int8")
    with Index.open(tmp_path / "plain", model=encoders / "one") as index:
        index.add(VECTORS, KEYS)
        with pytest.raises(InputError, match="has no refinement; add one with: proxyhash index refine"):
            index.search(VECTORS[:1], 3, refine=True)
        with pytest.raises(InputError, match="has no refinement"):
            index.search(VECTORS[:1], 3, oversample=2)
    with pytest.raises(InputError, match="made of the features of a model"):
        Index.open(tmp_path / "codes", bits=8, refine="code")
    with pytest.raises(InputError, match="There is no refinement 'float'; choose one of"):
        Index.open(tmp_path / "other", model=encoders / "one", refine="float")  # type: ignore[arg-type]


def test_items_as_queries_are_refined_by_their_rows(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        found = index.search(index.stored_queries(KEYS[:30]), 4)
        assert [matches[0].key for matches in found] == KEYS[:30]
        assert [matches.matches for matches in found] == [m.matches for m in index.search(VECTORS[:30], 4)]
        index.add(index.code(KEYS[0]), ["no row"])
        assert index.search(index.stored_queries(["no row"]), 4)[0].refined is None


def test_oversampling_sorts_candidates_by_their_rows_alone(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders, "int8") as index:
        candidates = index.search(VECTORS[:20], 40)
        for matches, expected in zip(index.search(VECTORS[:20], 10, oversample=4), candidates, strict=True):
            best = sorted(expected, key=lambda match: (match.refinement, match.distance, match.item_id))[:10]
            assert list(matches) == best
        unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
        true = np.argsort(-(unit[:20] @ unit.T), axis=1)[:, :10]
        recalls = [
            np.mean(
                [len({KEYS[row] for row in rows} & set(matches.keys)) for rows, matches in zip(true, found, strict=True)]
            )
            for found in (index.search(VECTORS[:20], 10, oversample=times) for times in (1, 4, COUNT // 10))
        ]
        assert recalls[0] < recalls[1] < recalls[2]
        assert recalls[2] > 9.5  # all items are candidates, and int8 values of all directions are nearly exact


def test_reranking_uses_rows_only_between_equal_scores(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        for matches in index.search(VECTORS[:20], 50, rerank=COUNT):
            order = [(match.score, match.distance, match.refinement) for match in matches]
            assert order == sorted(order)


def test_every_plan_and_filter_gives_the_same_order(tmp_path: Path, encoders: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", model=encoders / "one", refine="int8") as index:
        index.add(VECTORS, KEYS, labels=[["even"] if row % 2 == 0 else ["odd"] for row in range(COUNT)])
        expected = [matches.matches for matches in index.search(VECTORS[:20], 12)]
        for plan in ("scan", "mih"):
            assert [matches.matches for matches in index.search(VECTORS[:20], 12, plan=plan)] == expected
        everything, odd = index.range_search(VECTORS[:20], BITS), index.search(VECTORS[:20], 9, labels="odd")
        for matches, among in zip(odd, everything, strict=True):
            assert list(matches) == [match for match in among if match.labels == ("odd",)][:9]


def test_a_small_index_is_fitted_again_as_it_grows(tmp_path: Path, encoders: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", model=encoders / "one", refine="code") as index:
        fitted = []
        with patch.object(storage, "MIN_FITTED", 100):
            for row in range(120):
                index.add(VECTORS[row : row + 1], KEYS[row : row + 1])
                refiner = index.refinement.refiner if index.refinement else None
                fitted.append(0 if refiner is None else refiner.fitted_on)
                if row in (1, 40, 119):
                    assert finds_itself(index, range(row + 1))
        assert sorted(set(fitted)) == [0, 2, 4, 8, 16, 32, 64, 100]
        assert index.refinement is not None
        assert index.refinement.is_final
        assert features_name(1) not in item_arrays.list_arrays(index.store)
        assert len(rows_by_key(index)) == 120


def test_a_large_add_is_fitted_on_a_sample_before_it_is_stored(tmp_path: Path, encoders: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS)
    with patch.object(storage, "MIN_FITTED", 100), make_index(tmp_path / "i", encoders) as index:
        assert index.refinement is not None
        assert (index.refinement.is_final, len(rows_by_key(index))) == (True, COUNT)
        with LocalIndex.open_folder(tmp_path / "j", model=encoders / "one", refine="code") as other:
            add_vectors(other, read_vectors(tmp_path / "vectors.npy"))
            assert sorted(rows_by_key(other).values()) == sorted(rows_by_key(index).values())


def test_a_random_sample_of_a_large_folder_is_encoded_first(tmp_path: Path, short_model: Path, many_photos: Path) -> None:
    files = sorted(many_photos.rglob("*.png"))
    with (
        patch.multiple(storage, MAX_PENDING=16, MIN_FITTED=8),
        patch("proxyhash.index.folder_sync.COMMIT_IMAGES", 8),
        LocalIndex.open_folder(tmp_path / "i", model=short_model, refine="int8") as index,
    ):
        add_folder(index, many_photos, SkippedItems())
        names = [item.key for item in sorted(index.list_items(limit=100), key=lambda item: item.item_id)]
        assert names != sorted(names)
        assert names[:16] == sorted(names[:16])
        assert index.refinement is not None
        assert index.refinement.refiner is not None
        assert (index.refinement.refiner.fitted_on, len(rows_by_key(index))) == (16, 40)
        assert [matches[0].path for matches in index.search(files, 1)] == [file.resolve() for file in files]


def test_removed_and_replaced_items_lose_their_rows(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        before = rows_by_key(index)
        index.remove(KEYS[:50])
        index.add(VECTORS[60:61], [KEYS[100]])
        after = rows_by_key(index)
        assert after.keys() == set(KEYS[50:])
        assert after[KEYS[100]] == before[KEYS[60]]
        assert all(after[key] == before[key] for key in after if key != KEYS[100])
        assert verify(index).ok
        compact(index)
        assert rows_by_key(index) == after
        assert finds_itself(index, [50, 60, 70, 200])


def test_copies_have_the_same_refinement(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        backup(index, tmp_path / "copy")
        index.add(VECTORS[:20] + 1, [f"new {row}" for row in range(20)])
        backup(index, tmp_path / "copy")
        expected = rows_by_key(index)
    restore(tmp_path / "copy", tmp_path / "restored")
    salvage(tmp_path / "i", tmp_path / "saved")
    for name in ("copy", "restored", "saved"):
        with LocalIndex.open_folder(tmp_path / name) as copy:
            assert rows_by_key(copy) == expected
            assert finds_itself(copy)
            assert verify(copy).ok


def test_an_upgrade_refines_with_the_new_model(tmp_path: Path, encoders: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS)
    with LocalIndex.open_folder(tmp_path / "i", model=encoders / "one", refine="code") as index:
        add_vectors(index, read_vectors(tmp_path / "vectors.npy"))
        upgrade(index, Hasher.load(encoders / "two"), SkippedItems())
        arrays = item_arrays.list_arrays(index.store)
        assert {name for name in arrays if name.endswith(":1")} == set()
        assert len(rows_by_key(index)) == COUNT
        found = index.search(VECTORS[:30], 1)
        assert [matches[0].row for matches in found] == list(range(30))
        salvage(tmp_path / "i", tmp_path / "saved")
        with LocalIndex.open_folder(tmp_path / "saved") as saved:
            assert rows_by_key(saved) == rows_by_key(index)


def test_an_upgrade_of_images_refines_with_the_new_model(
    tmp_path: Path, short_model: Path, other_model: Path, many_photos: Path
) -> None:
    files = sorted(many_photos.rglob("*.png"))
    with LocalIndex.open_folder(tmp_path / "i", model=other_model, refine="int8") as index:
        add_folder(index, many_photos, SkippedItems())
        upgrade(index, Hasher.load(short_model), SkippedItems())
        assert [matches[0].path for matches in index.search(files, 1)] == [file.resolve() for file in files]
        assert verify(index).ok


def test_a_refinement_is_added_changed_and_removed_later(tmp_path: Path, short_model: Path, many_photos: Path) -> None:
    files = sorted(many_photos.rglob("*.png"))
    with LocalIndex.open_folder(tmp_path / "i", model=short_model) as index:
        add_folder(index, many_photos, SkippedItems())
        index.add(np.zeros((1, 1), np.uint8), ["by code"])
        assert refine_index(index, "code", SkippedItems()) == 1
        assert len(rows_by_key(index)) == 40
        assert [matches[0].path for matches in index.search(files, 1)] == [file.resolve() for file in files]
        assert refine_index(index, "int8", SkippedItems()) == 1
        assert index.info().refinement == "int8"
        assert [matches[0].path for matches in index.search(files, 1)] == [file.resolve() for file in files]
        refine_index(index, None, SkippedItems())
        assert index.info().refinement is None
        assert index.search(files, 1)[0].refined is None


def test_a_refinement_of_vectors_continues_where_it_was_stopped(tmp_path: Path, encoders: Path) -> None:
    with make_index(tmp_path / "i", encoders) as index:
        pass
    with LocalIndex.open_folder(tmp_path / "j", model=encoders / "one") as index:
        index.add(VECTORS[:200], KEYS[:200], keep_vectors=True)
        index.add(VECTORS[200:], KEYS[200:])
        assert refine_index(index, "code", SkippedItems()) == 100
        index.remove(KEYS[200:])
        index.add(VECTORS[200:], KEYS[200:], keep_vectors=True)
        assert refine_index(index, "code", SkippedItems()) == 0
        assert finds_itself(index)


def test_a_model_without_features_in_its_onnx_file_is_run_by_torch(
    tmp_path: Path, short_model: Path, many_photos: Path
) -> None:
    from helpers.models import relist
    from proxyhash.models.onnx_export import export_onnx

    old = Path(shutil.copytree(short_model, tmp_path / "old"))
    hasher = TorchHasher.load(old)
    export_onnx(hasher.network, old / "model.onnx", hasher.transform.size)
    relist(old, "model.onnx")
    files = sorted(many_photos.rglob("*.png"))
    with Index.open(tmp_path / "i", model=old, refine="code") as index:
        add_folder(index, many_photos, SkippedItems())
        assert [matches[0].path for matches in index.search(files, 1)] == [file.resolve() for file in files]


def test_a_stopped_creation_with_a_refinement_is_repeated(tmp_path: Path, encoders: Path) -> None:
    """The file and its refinement are written in two transactions, and the process may end in between."""
    with (
        patch("proxyhash.index.local.index.create_first_refinement", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        make_index(tmp_path / "i", encoders)
    with make_index(tmp_path / "i", encoders, "int8") as index:
        assert index.refinement is not None
        assert index.refinement.kind == "int8"
        assert finds_itself(index)
    with pytest.raises(InputError, match="has the refinement int8"):
        Index.open(tmp_path / "i", refine="code")


def test_an_index_that_is_written_gets_no_refinement_when_it_is_opened(tmp_path: Path, encoders: Path) -> None:
    with Index.open(tmp_path / "i", model=encoders / "one") as index:
        index.add(VECTORS[:3], KEYS[:3])
        index.remove(KEYS[:3])
    with pytest.raises(InputError, match="has no refinement; to change it, run"):
        Index.open(tmp_path / "i", refine="code")
    with Index.open(tmp_path / "codes", bits=8), pytest.raises(InputError, match="has no refinement; to change it, run"):
        Index.open(tmp_path / "codes", refine="code")
