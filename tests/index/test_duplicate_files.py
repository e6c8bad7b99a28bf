"""Files of near duplicates: the item to keep, CSV, lists and the page."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxyhash import InputError
from proxyhash.index.duplicates import DuplicateGroup, DuplicateItem, DuplicatesReport, find_duplicates
from proxyhash.index.duplicates.files import write_csv, write_list
from proxyhash.index.duplicates.groups import Thresholds
from proxyhash.index.duplicates.keeping import FileInfo, parse_keep_best, read_files
from proxyhash.index.duplicates.page import MAX_ITEMS, write_page
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import FileStat, Item, Source
from proxyhash.index.local.transactions import ItemBatch, add_batch


def make_report(*groups: DuplicateGroup) -> DuplicatesReport:
    return DuplicatesReport(groups, Thresholds(2), None, 10, 10)


def make_image(path: Path, size: tuple[int, int], quality: int = 90) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, quality=quality)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, size, quality in (("a.jpg", (40, 30), 95), ("b.jpg", (60, 45), 30), ("c.jpg", (60, 45), 90)):
        make_image(folder / name, size, quality)
    return folder


@pytest.fixture
def index(tmp_path: Path, photos: Path) -> LocalIndex:
    """Return an index in which the three photos have the same code."""
    opened = LocalIndex.open_folder(tmp_path / "i", bits=8)
    names = sorted(path.name for path in photos.iterdir())
    codes, files = np.zeros((3, 1), np.uint8), [FileStat(1, 1)] * 3
    add_batch(opened.store, ItemBatch(opened.store.codes_id, codes, names, source=Source(photos), files=files))
    return opened


@pytest.mark.parametrize(
    ("keep_best", "kept"),
    [(None, "a.jpg"), ("resolution", "b.jpg"), ("resolution,size", "c.jpg"), ("name=c*", "c.jpg"), ("name=x,size", "c.jpg")],
)
def test_best_item_is_kept(index: LocalIndex, keep_best: str | None, kept: str) -> None:
    found = find_duplicates(index, keep_best=keep_best)
    assert [item.key for item in found[0].items if item.is_kept] == [kept] == [found[0].items[0].key]


def test_criteria_that_do_not_exist_are_refused() -> None:
    for text in ("age", "name=", "resolution,,size", ""):
        with pytest.raises(InputError, match="Items are kept by resolution, size or name=PATTERN"):
            parse_keep_best(text)


def test_files_that_cannot_be_read_have_no_size(tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "empty.jpg").touch()
    make_image(tmp_path / "good.png", (7, 5))
    paths = [tmp_path / name for name in ("bad.jpg", "empty.jpg", "good.png", "missing.jpg")]
    found = read_files([*paths, None])
    assert found == [FileInfo(0, 0, 8), FileInfo(), FileInfo(7, 5, paths[2].stat().st_size), FileInfo(), FileInfo()]
    keep = parse_keep_best("resolution")
    assert keep.best([Item(number, str(number)) for number in range(5)], found) == 2


def test_csv_has_a_row_for_each_item(index: LocalIndex, photos: Path, tmp_path: Path) -> None:
    write_csv(find_duplicates(index, keep_best="size", with_files=True), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["key"], row["keep"], row["width"]) for row in rows] == [
        ("1", "c.jpg", "yes", "60"), ("1", "a.jpg", "no", "40"), ("1", "b.jpg", "no", "60"),
    ]  # fmt: skip
    assert (rows[0]["bytes"], rows[0]["path"]) == (str((photos / "c.jpg").stat().st_size), str(photos / "c.jpg"))


def test_list_has_the_paths_of_what_need_not_be_kept(index: LocalIndex, photos: Path, tmp_path: Path) -> None:
    report = find_duplicates(index)
    assert write_list(report, tmp_path / "others.txt") == 2
    assert (tmp_path / "others.txt").read_text() == f"{photos / 'b.jpg'}\n{photos / 'c.jpg'}\n"
    write_list(report, tmp_path / "others.txt", null=True)
    assert (tmp_path / "others.txt").read_bytes().split(b"\0")[1:] == [bytes(photos / "c.jpg"), b""]
    assert sorted(path.name for path in photos.iterdir()) == ["a.jpg", "b.jpg", "c.jpg"]


def test_name_with_a_line_break_is_not_listed_as_two(tmp_path: Path) -> None:
    items = (DuplicateItem("a", 0, is_kept=True), DuplicateItem("b\nc", 0))
    report = make_report(DuplicateGroup(items, 2))
    with pytest.raises(InputError, match="--null"):
        write_list(report, tmp_path / "others.txt")
    assert not (tmp_path / "others.txt").exists()
    assert write_list(report, tmp_path / "others.txt", null=True) == 1
    assert (tmp_path / "others.txt").read_bytes() == b"b\nc\0"


def test_key_of_a_vector_is_listed_instead_of_its_file(tmp_path: Path) -> None:
    items = (DuplicateItem("a", 0, is_kept=True), DuplicateItem("b", 0, path=Path("vectors.npy"), row=3))
    write_list(make_report(DuplicateGroup(items, 2)), tmp_path / "others.txt")
    assert (tmp_path / "others.txt").read_text() == "b\n"


def test_page_shows_thumbnails_sizes_and_the_kept_item(index: LocalIndex, photos: Path, tmp_path: Path) -> None:
    (photos / "a.jpg").write_bytes(b"no image any more")
    write_page(find_duplicates(index, keep_best="resolution", with_files=True), tmp_path / "page.html", "my <index>")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/jpeg;base64,") == 2
    assert text.count("no image") == 1
    assert text.count('class="kept"') == 1
    assert "60 \N{MULTIPLICATION SIGN} 45" in text
    assert "my &lt;index&gt;" in text
    assert "http" not in text.replace("https://", "http://")


def test_page_states_what_it_does_not_show(tmp_path: Path) -> None:
    items = tuple(DuplicateItem(f"<b>{number}", 0, is_kept=number == 0) for number in range(20))
    groups = [DuplicateGroup(items, 500), DuplicateGroup(items[:2], 2), DuplicateGroup(items[:2], 2)]
    write_page(make_report(*groups), tmp_path / "page.html", "i", max_groups=1)
    text = (tmp_path / "page.html").read_text()
    assert f"{500 - MAX_ITEMS} more items are not shown." in text
    assert "2 more groups are not shown." in text
    assert "<b>0" not in text
