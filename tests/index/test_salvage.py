"""Salvage of damaged indexes: every intact item is saved, lost ones are listed, nothing is wrong."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from helpers.index_content import index_content
from helpers.release_0_1 import index_folder
from proxyhash import InputError
from proxyhash.data import SkippedItems
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.commits import COMMITS_FILE
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.intact_rows import IntactRows, read_by_sql, read_pages
from proxyhash.index.local.raw_pages import RawPages
from proxyhash.index.maintenance import verify
from proxyhash.index.model_store import model_dir
from proxyhash.index.salvage import SalvageReport, salvage

PAGE = 8192
COUNT = 40_000  # items: three blocks, and two levels of pages of items

Content = dict[int, tuple[object, ...]]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """Return an index without a log, with some items replaced and removed, and its content."""
    folder = tmp_path_factory.mktemp("healthy") / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        labels = [[f"label {number % 7}", "ä"] if number % 3 else None for number in range(COUNT)]
        index.add(clustered_codes(COUNT, 8, 0), make_keys(COUNT), labels)
        index.add(clustered_codes(500, 8, 1), make_keys(500, 1000))
        index.remove(make_keys(300, 20_000))
        content = index_content(index)
    return folder, content


@pytest.fixture
def damaged(healthy: tuple[Path, Content], tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy[0], tmp_path / "i"))


def pages_of(folder: Path, name: str) -> dict[int, str]:
    """Return the kind of each page of a table or an index: leaf, internal or overflow."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        try:
            rows = connection.execute("SELECT pageno, pagetype FROM dbstat WHERE name = ?", (name,)).fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no table of pages")
    return dict(rows)


def ids_on_page(folder: Path, number: int) -> set[int]:
    pages = RawPages(folder / FILE)
    return {int(cell.row_id) for cell in pages._cells(pages.page(number)) if cell.row_id is not None}


def zero_page(folder: Path, number: int) -> None:
    with (folder / FILE).open("rb+") as handle:
        handle.seek((number - 1) * PAGE)
        handle.write(bytes(PAGE))


def salvaged(folder: Path, new: Path) -> tuple[SalvageReport, Content]:
    """Salvage an index; return the report and the content of the new one, which is intact."""
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}
    report = salvage(folder, new)
    after = {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}
    assert before == after  # the damaged index is not changed
    with LocalIndex.open_folder(new) as index:
        assert verify(index).problems == ()
        content = index_content(index)
    assert report.saved == len(content)
    assert {child.name for child in new.parent.iterdir() if child.name.startswith(".")} == set()
    return report, content


def test_pages_hold_what_sqlite_reads(healthy: tuple[Path, Content]) -> None:
    by_sql, ok = read_by_sql(healthy[0] / FILE, legacy=False)
    assert ok
    assert by_sql.is_complete()
    by_page = IntactRows(legacy=False)
    read_pages(RawPages(healthy[0] / FILE), by_page)
    assert (by_page.meta, by_page.versions, by_page.sources) == (by_sql.meta, by_sql.versions, by_sql.sources)
    assert by_page.blocks.keys() == by_sql.blocks.keys()
    assert by_page.has_all_blocks(1)
    one, other = (rows.items.execute("SELECT * FROM items ORDER BY item_id").fetchall() for rows in (by_sql, by_page))
    assert one == other


def test_intact_index_is_saved_completely(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    report, content = salvaged(damaged, tmp_path / "new")
    assert report == SalvageReport(len(healthy[1]), (), 0, 0, ())
    assert report.complete
    assert content == healthy[1]


def test_zeroed_leaf_page_of_items_loses_its_items(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    leaves = [number for number, kind in pages_of(damaged, "items").items() if kind == "leaf"]
    ids = ids_on_page(damaged, leaves[17])
    assert len(ids) > 50
    zero_page(damaged, leaves[17])
    report, content = salvaged(damaged, tmp_path / "new")
    assert {item.item_id for item in report.lost} == ids
    assert {(item.key, item.reason) for item in report.lost} == {(None, "its key and labels are damaged")}
    assert (report.unknown, report.lost_commits, report.complete) == (0, 0, False)
    assert content == {item_id: row for item_id, row in healthy[1].items() if item_id not in ids}


@pytest.mark.parametrize("table", ["items", "blocks", "sqlite_autoindex_items_1", "sqlite_autoindex_blocks_1", "sources"])
def test_zeroed_inner_pages_lose_nothing(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path, table: str) -> None:
    kinds = pages_of(damaged, table)
    inner = [number for number, kind in kinds.items() if kind == "internal"]
    if table == "items":
        assert inner
    if table != "blocks":
        for number in inner or kinds:
            zero_page(damaged, number)
    else:  # the table has one page, besides overflow: damage the tree in another way
        with sqlite3.connect(damaged / FILE) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_master SET rootpage = 2 WHERE name = 'blocks'")
        connection.close()
    report, content = salvaged(damaged, tmp_path / "new")
    assert report.complete
    assert content == healthy[1]


def test_zeroed_page_of_codes_loses_one_block(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    overflow = [number for number, kind in pages_of(damaged, "blocks").items() if kind == "overflow"]
    zero_page(damaged, overflow[3])
    report, content = salvaged(damaged, tmp_path / "new")
    assert 10_000 < len(report.lost) <= 16_384
    assert all(item.reason == "its code is damaged" and item.key == healthy[1][item.item_id][0] for item in report.lost)
    lost = {item.item_id for item in report.lost}
    assert content == {item_id: row for item_id, row in healthy[1].items() if item_id not in lost}


def test_zeroed_header_loses_nothing(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    zero_page(damaged, 1)
    report, content = salvaged(damaged, tmp_path / "new")
    assert report.complete
    assert content == healthy[1]  # removed items, which are still in free pages, do not come back


def test_zeroed_tables_of_versions_and_meta_lose_nothing_but_the_exact_length(
    damaged: Path, healthy: tuple[Path, Content], tmp_path: Path
) -> None:
    for table in ("meta", "versions"):
        for number in pages_of(damaged, table):
            zero_page(damaged, number)
    report, content = salvaged(damaged, tmp_path / "new")
    assert content == healthy[1]
    assert (report.lost, report.lost_commits) == ((), None)
    assert report.notes == ("The description of the codes is lost; they are taken as 64 bits without a model.",)


def test_truncated_file_keeps_what_is_left(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    size = (damaged / FILE).stat().st_size
    with (damaged / FILE).open("rb+") as handle:
        handle.truncate(size - 20 * PAGE + 1000)
    report, content = salvaged(damaged, tmp_path / "new")
    assert 0 < report.saved < len(healthy[1])
    assert report.saved + len(report.lost) + report.unknown == len(healthy[1])
    assert all(healthy[1][item_id] == row for item_id, row in content.items())


def with_log(folder: Path) -> Content:
    """Add to an index, and leave its log as a killed process does; return the content."""
    copy = folder.with_name("copy")
    with LocalIndex.open_folder(folder) as index:
        for batch in range(4):
            index.add(clustered_codes(300, 8, 10 + batch), make_keys(300, 100_000 + 300 * batch))
        content = index_content(index)
        shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    copy.rename(folder)
    assert (folder / f"{FILE}-wal").stat().st_size > 100_000
    return content


def test_items_in_the_log_are_saved(damaged: Path, tmp_path: Path) -> None:
    before = with_log(damaged)
    zero_page(damaged, 1)  # in the file; the log has another first page
    report, content = salvaged(damaged, tmp_path / "new")
    assert report.complete
    assert content == before


def test_lost_log_is_counted_as_lost_commits(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    with_log(damaged)
    (damaged / f"{FILE}-wal").unlink()
    (damaged / f"{FILE}-shm").unlink()
    report, content = salvaged(damaged, tmp_path / "new")
    assert (report.lost_commits, report.lost, report.complete) == (4, (), False)
    assert content == healthy[1]


def test_commits_after_damage_in_the_log_are_saved(damaged: Path, tmp_path: Path) -> None:
    before = with_log(damaged)
    log = damaged / f"{FILE}-wal"
    content = bytearray(log.read_bytes())
    content[32 + 24 + 5000] ^= 255  # in the first page of the log, where SQLite stops reading
    log.write_bytes(content)
    with pytest.raises(InputError, match=r"last 4 commits are lost.*salvage"):
        LocalIndex.open_folder(damaged)
    assert log.read_bytes() == content  # SQLite alone would delete it now
    report, saved = salvaged(damaged, tmp_path / "new")
    assert report.lost_commits == 0
    assert saved == before


def test_damaged_row_is_lost_and_others_are_saved(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    with sqlite3.connect(damaged / FILE) as connection:
        connection.execute("UPDATE items SET labels = '[\"wrong\"]' WHERE item_id = 7")
    connection.close()
    report, content = salvaged(damaged, tmp_path / "new")
    assert [item.item_id for item in report.lost] == [7]
    assert content == {item_id: row for item_id, row in healthy[1].items() if item_id != 7}


def test_counter_may_be_missing_or_damaged(damaged: Path, healthy: tuple[Path, Content], tmp_path: Path) -> None:
    (damaged / COMMITS_FILE).write_bytes(b"?" * 9000)
    report, content = salvaged(damaged, tmp_path / "new")
    assert report.lost_commits is None
    assert report.notes == ("The counter of commits is damaged, so that lost commits cannot be counted.",)
    (damaged / COMMITS_FILE).unlink()
    report, content = salvaged(damaged, tmp_path / "newer")
    assert content == healthy[1]


def flip(content: bytearray, random: np.random.Generator) -> None:
    for offset in random.integers(0, len(content), 20):
        content[offset] ^= 1 << random.integers(8)


def zero(content: bytearray, random: np.random.Generator) -> None:
    for page in random.integers(0, len(content) // PAGE, 3):
        content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def swap(content: bytearray, random: np.random.Generator) -> None:
    one, other = (int(page) * PAGE for page in random.integers(0, len(content) // PAGE, 2))
    content[one : one + PAGE], content[other : other + PAGE] = content[other : other + PAGE], content[one : one + PAGE]


def fill(content: bytearray, random: np.random.Generator) -> None:
    first = int(random.integers(0, len(content) - 30_000))
    content[first : first + 30_000] = random.bytes(30_000)


def cut(content: bytearray, random: np.random.Generator) -> None:
    del content[int(random.integers(len(content) // 2, len(content))) :]


def damage_and_check(healthy: tuple[Path, Content], folder: Path, seed: int) -> None:
    """Damage a file at random; every item whose page is unchanged and whose block is intact is saved, and none is wrong."""
    random = np.random.default_rng(seed)
    kinds: list[Callable[[bytearray, np.random.Generator], None]] = [flip, zero, swap, fill, cut]
    shutil.copytree(healthy[0], folder / "i")
    before = (folder / "i" / FILE).read_bytes()
    content = bytearray(before)
    kinds[seed % len(kinds)](content, random)
    (folder / "i" / FILE).write_bytes(content)
    try:
        report, found = salvaged(folder / "i", folder / "new")
    except InputError as error:
        raise AssertionError(f"seed {seed}") from error
    assert all(healthy[1].get(item_id) == row for item_id, row in found.items()), f"seed {seed}"
    intact = IntactRows(legacy=False)
    pages = RawPages(folder / "i" / FILE)
    for number in range(2, pages.count + 1):
        if content[(number - 1) * PAGE : number * PAGE] == before[(number - 1) * PAGE : number * PAGE]:
            intact.add(pages._cells(pages.page(number)))
    coded = {int(item_id) for block in intact.blocks.values() for item_id in block.item_ids}
    rows = {item_id for (item_id,) in intact.items.execute("SELECT item_id FROM items")}
    assert coded & rows & healthy[1].keys() <= found.keys(), f"seed {seed}"
    assert report.complete <= (found == healthy[1]), f"seed {seed}"
    shutil.rmtree(folder / "i")
    shutil.rmtree(folder / "new")


def test_random_damage_gives_no_wrong_item(healthy: tuple[Path, Content], tmp_path: Path) -> None:
    for seed in range(5):
        damage_and_check(healthy, tmp_path, seed)


@pytest.mark.slow
def test_much_random_damage_gives_no_wrong_item(healthy: tuple[Path, Content], tmp_path: Path) -> None:
    for seed in range(5, 105):
        damage_and_check(healthy, tmp_path, seed)


@pytest.fixture
def photo_index(tmp_path: Path, model: Path, photos: Path) -> Path:
    with LocalIndex.open_folder(tmp_path / "i", model=model) as index:
        add_folder(index, photos, SkippedItems())
    return tmp_path / "i"


def test_new_index_has_the_model_and_the_folders(photo_index: Path, photos: Path, tmp_path: Path) -> None:
    with LocalIndex.open_folder(photo_index) as index:
        expected = index_content(index)
    zero_page(photo_index, 1)
    report, content = salvaged(photo_index, tmp_path / "new")
    assert report.complete
    assert content == expected
    with LocalIndex.open_folder(tmp_path / "new") as index:
        assert index.search(photos / "cats" / "1.png", 1)[0][0].key == "cats/1.png"
        assert index.item("cats/1.png").path == (photos / "cats" / "1.png").resolve()
        assert add_folder(index, photos, SkippedItems()).unchanged == 12


def test_model_is_found_if_the_description_of_the_codes_is_lost(photo_index: Path, photos: Path, tmp_path: Path) -> None:
    for table in ("meta", "versions", "sources"):
        for number in pages_of(photo_index, table):
            zero_page(photo_index, number)
    report, _ = salvaged(photo_index, tmp_path / "new")
    assert (report.saved, report.lost) == (12, ())
    assert report.notes == ("The folder of 12 items is lost; their keys and labels are not.",)
    with LocalIndex.open_folder(tmp_path / "new") as index:
        assert index.search(photos / "cats" / "1.png", 1)[0][0].key == "cats/1.png"


def test_damaged_model_leaves_the_codes(photo_index: Path, tmp_path: Path) -> None:
    with LocalIndex.open_folder(photo_index) as index:
        weights = model_dir(photo_index, str(index.model)) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    report, content = salvaged(photo_index, tmp_path / "new")
    assert (len(content), report.lost, report.complete) == (12, (), False)
    assert report.notes[0].startswith("The copy of the model is damaged, so that the new index has codes only: ")
    with LocalIndex.open_folder(tmp_path / "new") as index:
        assert (index.model, index.bits) == (None, 32)


@pytest.mark.parametrize("name", ["photos-index", "clustered-index", "scanned-index"])
@pytest.mark.parametrize("damage", ["nothing", "header"])
def test_index_of_release_0_1_is_saved(tmp_path: Path, name: str, damage: str) -> None:
    folder = index_folder(name, tmp_path)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    with LocalIndex.open_folder(copy) as index:
        expected = index_content(index)
    if damage == "header":
        zero_page(folder, 1)
    report, content = salvaged(folder, tmp_path / "new")
    assert (report.lost, report.notes) == ((), ())
    assert content == expected


def test_nothing_intact_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / FILE).write_bytes(np.random.default_rng(0).bytes(100_000))
    with pytest.raises(InputError, match=r"Nothing in .* is intact"):
        salvage(tmp_path / "i", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="There is no index at"):
        salvage(tmp_path / "nowhere", tmp_path / "new")


def test_existing_folder_is_not_overwritten(damaged: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.txt").touch()
    with pytest.raises(InputError, match="exists; choose another folder"):
        salvage(damaged, tmp_path / "new")
