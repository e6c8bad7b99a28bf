"""Folders of images in an index: what is added, skipped, replaced and removed, and moving to another model."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.images import save_image
from proxyhash import InputError
from proxyhash.data import SkippedItems
from proxyhash.index import folder_sync
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.transactions import ItemBatch, add_batch
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.upgrade import upgrade
from proxyhash.models.hasher import Hasher


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def index(tmp_path: Path, model: Path, photos: Path) -> LocalIndex:
    opened = LocalIndex.open_folder(tmp_path / "i", model=model)
    add_folder(opened, photos, SkippedItems())
    return opened


def test_folder_is_encoded_with_its_labels(index: LocalIndex, photos: Path, model: Path) -> None:
    assert len(index) == 12
    hasher = Hasher.load(model)
    paths = [photos / "cats" / "3.png", photos / "dogs" / "8.png"]
    np.testing.assert_array_equal(np.concatenate([index.code("cats/3.png"), index.code("dogs/8.png")]), hasher.encode(paths))
    matches = index.search(paths[1], 1)[0]
    assert (matches.query, matches[0].key, matches[0].labels) == (str(paths[1]), "dogs/8.png", ("dogs",))
    assert index.item("dogs/8.png").path == paths[1].resolve()
    info = index.info()
    assert (info.items, info.bits, info.sources, info.calibrated) == (12, 32, (str(photos.resolve()),), False)
    assert verify(index).ok


def test_only_changed_files_are_encoded_again(index: LocalIndex, photos: Path) -> None:
    done = add_folder(index, photos, SkippedItems())
    assert (done.added, done.replaced, done.unchanged) == (0, 0, 12)
    before = index.code("cats/0.png")
    picture(photos / "cats" / "0.png", 50)
    os.utime(photos / "cats" / "0.png", ns=(1, 1))  # also if the clock is too coarse to tell
    picture(photos / "birds" / "20.png", 51)
    (photos / "dogs" / "7.png").unlink()
    (photos / "dogs" / "8.png").write_bytes(b"no picture")
    problems = SkippedItems()
    done = add_folder(index, photos, problems)
    assert (done.added, done.replaced, done.unchanged, done.removed, done.unreadable) == (1, 1, 9, 0, 1)
    assert "dogs/8.png cannot be decoded" in problems.sentences()[0]
    assert (index.code("cats/0.png") != before).any()
    assert len(index) == 13
    done = add_folder(index, photos, SkippedItems(), prune=True)
    assert (done.unchanged, done.removed, len(index)) == (11, 1, 12)
    with pytest.raises(InputError, match=r"no item dogs/7.png"):
        index.item("dogs/7.png")
    assert index.item("dogs/8.png").key  # what cannot be read now keeps its old code
    assert verify(index).ok


@pytest.mark.parametrize("seconds", [-2_000_000_000, -1, 0, 2**33, 2**63 // 10**9 + 5], ids=[1906, 1969, 1970, 2242, 2262])
def test_files_of_any_date_are_added_and_then_unchanged(index: LocalIndex, photos: Path, seconds: int) -> None:
    path = photos / "cats" / "0.png"
    for date in (seconds, seconds + 1):
        os.utime(path, (date, date))
        if path.stat().st_mtime_ns != date * 10**9:
            pytest.skip("this file system cannot store the date")
        assert add_folder(index, photos, SkippedItems()).replaced == 1
        assert add_folder(index, photos, SkippedItems()).unchanged == 12


def test_everything_that_is_left_out_is_reported(index: LocalIndex, photos: Path, tmp_path: Path) -> None:
    save_image(np.zeros((9, 9, 3)), tmp_path / "elsewhere" / "1.png")
    (photos / "cats" / "out.png").symlink_to(tmp_path / "elsewhere" / "1.png")
    (photos / "cats" / "gone.png").symlink_to("nothing.png")
    (photos / "birds").symlink_to(tmp_path / "elsewhere")
    (photos / "dogs" / "notes.txt").write_text("no image")
    (photos / "dogs" / ".DS_Store").write_bytes(b"x")
    (photos / "dogs" / "empty.png").write_bytes(b"")
    (photos / "dogs" / "bad.png").write_bytes(b"no image")
    (photos / "dogs" / os.fsdecode(b"\xff.png")).write_bytes((photos / "dogs" / "7.png").read_bytes())
    (photos / "fish").mkdir()
    skipped = SkippedItems()
    done = add_folder(index, photos, skipped)
    assert (done.added, done.unchanged, done.unreadable) == (0, 12, 2)
    assert sorted(skipped.sentences()) == [
        "class without images: 1 (fish)",
        "empty file: 1 (dogs/empty.png is empty)",
        r"file name that is not UTF-8: 1 (dogs/\xff.png)",
        "file of another kind: 1 (dogs/notes.txt)",
        "hidden file or folder: 1 (dogs/.DS_Store)",
        "link to a folder, not entered: 1 (birds)",
        "link to nothing: 1 (cats/gone.png)",
        "outside the folder: 1 (cats/out.png)",
        "unreadable image: 1 (dogs/bad.png cannot be decoded as an image (its format is not recognized))",
    ]


def test_rows_without_files_are_reported(index: LocalIndex, photos: Path) -> None:
    (photos / "metadata.csv").write_text("file_name,label\ncats/0.png,cat\nabsent.png,cat\n")
    skipped = SkippedItems()
    assert add_folder(index, photos, skipped).unchanged == 1
    assert skipped.counts == {"row whose file is missing": 1, "image without a row": 11}


def test_a_folder_whose_name_is_not_utf8_is_refused(index: LocalIndex, photos: Path) -> None:
    renamed = photos.rename(photos.parent / os.fsdecode(b"\xff"))
    with pytest.raises(InputError, match="is not UTF-8, so an index cannot store it; rename the folder"):
        add_folder(index, renamed, SkippedItems())


def test_file_names_that_are_not_utf8_are_skipped(index: LocalIndex, photos: Path) -> None:
    try:
        (photos / "cats" / "0.png").rename(os.fsdecode(os.fsencode(photos) + b"/cats/\xff.png"))
    except OSError:
        pytest.skip("this file system has only names that are text")
    problems = SkippedItems()
    assert add_folder(index, photos, problems).added == 0
    assert problems.sentences() == [r"file name that is not UTF-8: 1 (cats/\xff.png)"]


def test_unreadable_image_stops_a_strict_add(index: LocalIndex, photos: Path) -> None:
    (photos / "dogs" / "8.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="unreadable image"):
        add_folder(index, photos, SkippedItems(strict=True))
    assert len(index) == 12


def test_second_folder_with_the_same_keys_needs_a_prefix(index: LocalIndex, tmp_path: Path) -> None:
    picture(tmp_path / "more" / "cats" / "0.png", 9)
    with pytest.raises(InputError, match=r"cats/0.png is in the index already, from elsewhere; .* --prefix"):
        add_folder(index, tmp_path / "more", SkippedItems())
    add_folder(index, tmp_path / "more", SkippedItems(), prefix="more/", prune=True)
    assert len(index) == 13  # pruning concerns only its own folder
    assert index.item("more/cats/0.png").path == (tmp_path / "more" / "cats" / "0.png").resolve()


def test_images_encoded_before_an_error_are_kept(index: LocalIndex, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_sync, "COMMIT_IMAGES", 1)
    for number in range(100):  # two batches of the network
        picture(photos / "new" / f"{number:03d}.png", number)
    (photos / "new" / "090.png").write_bytes(b"no picture")
    with pytest.raises(InputError):
        add_folder(index, photos, SkippedItems(strict=True))
    assert 12 < len(index) < 112
    done = add_folder(index, photos, SkippedItems())
    assert (len(index), done.unreadable) == (111, 1)


def test_unreadable_query_is_named_in_the_error(index: LocalIndex, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"bad.png cannot be decoded"):
        index.search(tmp_path / "bad.png")
    with pytest.raises(InputError, match=r"absent.png is not there"):
        index.search([tmp_path / "absent.png"])
    with pytest.raises(InputError, match="At least one query"):
        index.search([])


def test_another_model_is_refused(index: LocalIndex, tmp_path: Path, model: Path, other_model: Path) -> None:
    with pytest.raises(InputError, match="made with another model, whose codes cannot be compared"):
        LocalIndex.open_folder(tmp_path / "i", model=other_model)
    assert LocalIndex.open_folder(tmp_path / "i", model=model).model == index.model
    with pytest.raises(InputError, match="is not a model"):
        LocalIndex.open_folder(tmp_path / "j", model=tmp_path / "photos")
    assert not (tmp_path / "j").exists()


def test_model_in_memory_is_copied_to_the_index(tmp_path: Path, model: Path, photos: Path) -> None:
    hasher = Hasher.load(model)
    hasher.folder = None
    with LocalIndex.open_folder(tmp_path / "i", model=hasher) as index:
        assert hasher.folder is None
        index.add([photos / "cats" / "0.png"], ["a"])
    with LocalIndex.open_folder(tmp_path / "i") as index:  # from the copy
        assert index.search(photos / "cats" / "0.png")[0][0].distance == 0
        assert verify(index).ok


def test_upgrade_gives_every_item_a_new_code(index: LocalIndex, photos: Path, other_model: Path) -> None:
    reader = LocalIndex.open_folder(index.folder)
    assert len(reader.search(photos / "cats" / "1.png", 3)[0]) == 3
    index.remove(["cats/0.png"])
    hasher = Hasher.load(other_model)
    assert upgrade(index, hasher, SkippedItems()) == 11
    assert (index.bits, index.info().items) == (24, 11)
    np.testing.assert_array_equal(index.code("dogs/8.png"), hasher.encode(photos / "dogs" / "8.png"))
    assert reader.search(photos / "cats" / "1.png", 1)[0][0] == index.search(photos / "cats" / "1.png", 1)[0][0]
    assert [child.name for child in (index.folder / "models").iterdir()] == [index.model]
    assert verify(index).ok
    with pytest.raises(InputError, match="nothing to upgrade"):
        upgrade(index, hasher, SkippedItems())


def test_codes_of_the_old_model_are_refused_after_an_upgrade(index: LocalIndex, other_model: Path) -> None:
    batch = ItemBatch(index.store.codes_id, np.zeros((1, 4), np.uint8), ["late"])
    upgrade(index, Hasher.load(other_model), SkippedItems())
    with pytest.raises(InputError, match="moved to another model meanwhile"):
        add_batch(index.store, batch)
    with pytest.raises(InputError, match="Codes of 4 bytes do not fit an index of 24 bits"):
        index.search(np.zeros((1, 4), np.uint8))
    assert (len(index), verify(index).problems) == (12, ())


def test_upgrade_stops_at_missing_images_and_continues_there(index: LocalIndex, photos: Path, other_model: Path) -> None:
    (photos / "cats" / "2.png").unlink()
    hasher = Hasher.load(other_model)
    with pytest.raises(InputError, match=r"1 images cannot be read any more, cats/2.png among them; --drop-unreadable"):
        upgrade(index, hasher, SkippedItems())
    assert (index.bits, len(index)) == (32, 12)  # the live index is as it was
    assert index.search(photos / "dogs" / "8.png", 1)[0][0].distance == 0
    assert upgrade(index, hasher, SkippedItems(), drop_unreadable=True) == 11
    assert (index.bits, len(index), verify(index).problems) == (24, 11, ())


def test_upgrade_without_readable_images_empties_the_index(index: LocalIndex, photos: Path, other_model: Path) -> None:
    for path in photos.rglob("*.png"):
        path.unlink()
    assert upgrade(index, Hasher.load(other_model), SkippedItems(), drop_unreadable=True) == 0
    assert (len(index), verify(index).problems) == (0, ())


def test_imported_codes_cannot_be_upgraded(tmp_path: Path, other_model: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(np.zeros((1, 8), np.uint8), ["a"])
        with pytest.raises(InputError, match="The code of a was imported"):
            upgrade(index, Hasher.load(other_model), SkippedItems())


def test_damaged_model_copy_is_reported(index: LocalIndex) -> None:
    assert index.model is not None
    weights = index.folder / "models" / index.model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert verify(index).problems == (f"{weights} is damaged: its checksum differs.",)


def test_compacting_fills_blocks_and_shrinks_the_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    stored = random.integers(0, 256, (60_000, 8), dtype=np.uint8)
    keys = [f"{number:05d}" for number in range(60_000)]
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(stored, keys)
        index.remove([key for number, key in enumerate(keys) if number % 4])
        near = index.search(stored[:5], 5)
        blocks_before = verify(index).blocks
        before, after = compact(index)
        assert after < before / 2
        assert (blocks_before, verify(index).blocks, verify(index).problems) == (4, 1, ())
        assert index.search(stored[:5], 5) == near
        index.add(stored[1:2], ["again"])
        assert index.search(stored[1:2], 1)[0][0].key == "again"


def test_columns_of_metadata_are_those_of_items(tmp_path: Path, model: Path) -> None:
    for number in range(3):
        picture(tmp_path / "photos" / f"{number}.png", number)
    rows = ["0.png,cat,2020,2024-05-31,a", "1.png,dog,,2024-06-01T12:00:00Z,", "2.png,cat,2021,,3", ""]
    table = "\n".join(["file_name,label,Year,taken,title", *rows])
    (tmp_path / "photos" / "metadata.csv").write_text(table)
    with LocalIndex.open_folder(tmp_path / "i", model=model) as index:
        add_folder(index, tmp_path / "photos", SkippedItems())
        assert index.columns == {"Year": "number", "taken": "date", "title": "text"}
        found = index.search(tmp_path / "photos" / "0.png", 10, where="Year > 2019 and (taken == None or title == 'a')")[0]
        assert sorted(found.keys) == ["0.png", "2.png"]
        assert index.item("2.png").columns == {"Year": 2021, "title": "3"}
        picture(tmp_path / "photos" / "3.png", 3)
        (tmp_path / "photos" / "metadata.csv").write_text(f"{table}3.png,cat,soon,,\n")
        with pytest.raises(InputError, match="Year is a column of numbers, and 'soon' is not a number"):
            add_folder(index, tmp_path / "photos", SkippedItems())
        assert len(index) == 3
        add_folder(index, tmp_path / "photos", SkippedItems(), columns=["title"])
        assert len(index) == 4
        with pytest.raises(InputError, match="has no column titel; did you mean title"):
            add_folder(index, tmp_path / "photos", SkippedItems(), columns=["titel"])
