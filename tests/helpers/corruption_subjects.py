"""Files of every format, and the answers that they give."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from helpers.codes import clustered_codes, make_keys
from helpers.corruption import Subject
from helpers.images import save_image
from helpers.index_content import array_content
from helpers.models import make_model, make_vector_model
from proxyhash import Hasher, InputError, ProxySet, design_proxies
from proxyhash.codes.files import read_code_file
from proxyhash.columns import ColumnsLike
from proxyhash.data import SkippedItems
from proxyhash.data.vectors import read_vectors
from proxyhash.index.calibration import Calibration
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local import array_blocks, blocks, item_arrays, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import all_ids
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.refinement.backfill import refine_index
from proxyhash.index.refinement.refiner import Kind
from proxyhash.index.results import Matches
from proxyhash.index.vector_sync import add_vectors
from proxyhash.models.code_shards import CodeShard, read_shard, write_shard

QUERIES = clustered_codes(3, 8, 77)
PIXELS = np.random.default_rng(3).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)


def _fill(index: LocalIndex, seed: int) -> None:
    """Add, replace and remove items, so that the file has several generations and free pages."""
    for batch in range(6):
        labels = [("cat", "tame") if number % 3 else ("dog",) for number in range(60)]
        index.add(clustered_codes(60, 8, 10 * seed + batch), make_keys(60, 40 * batch), labels)
    index.remove(make_keys(30, 20))


def build_index(folder: Path, seed: int) -> None:
    with LocalIndex.open_folder(folder, bits=64) as index:
        _fill(index, seed)


def build_index_with_log(folder: Path, seed: int) -> None:
    """Copy an index while it is open, so that its last commits are in the log only."""
    whole = folder.with_name(f"{folder.name}-open")
    with LocalIndex.open_folder(whole, bits=64) as index:
        _fill(index, seed)
        index.store.run("PRAGMA wal_checkpoint(PASSIVE)")
        index.add(clustered_codes(20, 8, 90 + seed), make_keys(20, 500))
        index.remove(make_keys(5, 500))
        shutil.copytree(whole, folder)
    shutil.rmtree(whole)


def build_clustered_index(folder: Path, seed: int) -> None:
    with patch.object(transactions, "MIN_CODES_FOR_CLUSTERS", 200), patch.object(blocks, "CODES_PER_BLOCK", 100):
        build_index(folder, seed)
    with LocalIndex.open_folder(folder) as index:
        assert seed or index.info().plan != "scan"


@contextmanager
def _opened(folder: Path) -> Iterator[LocalIndex]:
    """Open an index; if an answer is refused, `verify` must have found problems."""
    with LocalIndex.open_folder(folder) as index:
        problems = verify(index).problems
        try:
            yield index
        except InputError as error:
            if not problems:
                raise AssertionError(f"verify called it whole: {error}") from error
            raise


def _answers(found: list[Matches]) -> list[Any]:
    return [matches.as_dict() for matches in found]


def ask_index(folder: Path) -> Any:
    """Search everything, look up keys, and count; an index that is verified as intact must answer."""
    with _opened(folder) as index:
        keys = [(index.item(key).labels, index.code(key).tobytes()) for key in make_keys(3, 100)]
        return _answers(index.search(QUERIES, 1000)), keys, len(index)


def ask_by_label(folder: Path) -> Any:
    """Search a few items by label, so that the rows of most items are not returned."""
    with _opened(folder) as index:
        return _answers(index.search(QUERIES, 3, labels=["dog"]))


def build_photo_index(folder: Path, seed: int) -> None:
    model = make_model(32, seed, folder.with_name(f"{folder.name}-model"))
    Calibration(np.linspace(1, 0, 33) ** (1 + seed), np.arange(33)).save(model)
    photos = folder.with_name("photos")  # the same for both seeds
    random = np.random.default_rng(0)
    for number in range(6):
        if not (photos / f"{number}.png").is_file():
            save_image(random.integers(0, 256, (20, 30, 3), dtype=np.uint8), photos / f"{number}.png")
    with LocalIndex.open_folder(folder, model=model) as index:
        add_folder(index, photos, SkippedItems())


def ask_photo_index(folder: Path) -> Any:
    with _opened(folder) as index:
        return _answers(index.search(PIXELS, 9, rerank=9)), len(index)


VECTORS = np.random.default_rng(5).normal(size=(80, 12)).astype(np.float32)


def build_vector_index(folder: Path, seed: int) -> None:
    """Keep some vectors and refer to others, in blocks of a few."""
    model = make_vector_model(12, 32, seed, folder.with_name(f"{folder.name}-encoder"))
    file = folder.with_name("vectors.npy")  # the same for both seeds
    if not file.is_file():
        np.save(file, VECTORS[:40])
    with LocalIndex.open_folder(folder, model=model) as index, patch.object(array_blocks, "BYTES_PER_BLOCK", 480):
        add_vectors(index, read_vectors(file))
        for turn in range(4):
            rows = slice(40 + 10 * turn - 5 * seed, 50 + 10 * turn)
            index.add(VECTORS[rows], make_keys(rows.stop - rows.start, 5 * turn), keep_vectors=True)
        _write_columns(index, seed)
        index.remove(make_keys(4, 2))


def _write_columns(index: LocalIndex, seed: int) -> None:
    """Give all items a price, and some a title."""
    store = index.store
    with store.writing():
        item_ids = all_ids(store)
        item_arrays.append_rows(store, "array:price", item_ids, (item_ids[:, None] + seed).astype(np.float64))
        settings = {"type": "text", "values": ["a", f"b {seed}"]}
        item_arrays.append_rows(store, "array:title", item_ids[::2], (item_ids[::2, None] % 2), settings)


def ask_vector_index(folder: Path) -> Any:
    """Search by vectors, and read the vectors that an upgrade would encode, and the other arrays."""
    with _opened(folder) as index:
        found = _answers(index.search(VECTORS[:3], 99, rerank=99))
        arrays = [
            (name, item_id, row.tolist()) for name, rows in array_content(index).items() for item_id, row in rows.items()
        ]
        settings = {name: info.settings for name, info in item_arrays.list_arrays(index.store).items()}
        rows = {item.key: (item.row, item.path) for item in index.list_items()}
        return found, arrays, settings, rows, len(index)


PLACES = ("Rome", "Oslo", "Lima", None)
FILTERS = (
    "price > 40",
    "price == 12.5",
    "place in ('Rome', 'Kyiv')",
    "place < 'Oslo'",
    "day >= '2024-03-01'",
    "day == None",
)


def _columns(count: int, seed: int) -> ColumnsLike:
    """Return a column of each type, with missing values; whole numbers become fractions after the first batches."""
    days = [None if row % 7 == 3 else datetime(2024, 1 + row % 12, 1 + seed, tzinfo=UTC) for row in range(count)]
    price = [row + seed if seed < 3 else row + seed / 2 for row in range(count)]
    return {"price": price, "place": [PLACES[(row + seed) % len(PLACES)] for row in range(count)], "day": days}


def build_column_index(folder: Path, seed: int) -> None:
    """Add, replace and remove items with columns in blocks of some rows."""
    with LocalIndex.open_folder(folder, bits=64) as index, patch.object(array_blocks, "ROWS_PER_BLOCK", 16):
        for batch in range(5):
            codes, keys = clustered_codes(30, 8, 10 * seed + batch), make_keys(30, 20 * batch)
            index.add(codes, keys, columns=_columns(30, batch + seed))
        index.remove(make_keys(12, 31))


def ask_columns(folder: Path) -> Any:
    """Return the columns of items and matches, and what filters keep."""
    with _opened(folder) as index:
        kept = [index.search(QUERIES[:1], 1000, where=where)[0].keys for where in FILTERS]
        items = {item.key: dict(item.columns) for item in index.list_items(limit=1000)}
        return kept, items, _answers(index.search(QUERIES, 5)), dict(index.columns)


def ask_after_writing_columns(folder: Path) -> Any:
    """Add, replace and remove items, and return the same as before."""
    with LocalIndex.open_folder(folder) as index:
        index.add(clustered_codes(20, 8, 3), make_keys(20, 90), columns=_columns(20, 4))
        index.remove(make_keys(5, 2))
        compact(index)
    return ask_columns(folder)


def build_refined_index(folder: Path, seed: int) -> None:
    """Add vectors to an index with a refinement; the last ones are in the log only. Their features wait for a fit."""
    model = make_vector_model(12, 8, seed, folder.with_name(f"{folder.name}-encoder"))
    whole = folder.with_name(f"{folder.name}-open")
    kind: Kind = "code" if seed else "int8"
    with LocalIndex.open_folder(whole, model=model, refine=kind) as index, patch.object(array_blocks, "ROWS_PER_BLOCK", 16):
        index.add(VECTORS[:25], make_keys(25), keep_vectors=True)
        index.add(VECTORS[20 + seed : 50], make_keys(30 - seed, 20), keep_vectors=True)
        index.remove(make_keys(6, 4))
        index.store.run("PRAGMA wal_checkpoint(PASSIVE)")
        index.add(VECTORS[50:60], make_keys(10, 48), keep_vectors=True)
        shutil.copytree(whole, folder)
    shutil.rmtree(whole)


def ask_refined(folder: Path) -> Any:
    """Return distances, refinement distances and the order of all items, for vectors and for stored items."""
    with _opened(folder) as index:
        everything = _answers(index.range_search(VECTORS[:3], 8))
        stored = _answers(index.search(index.stored_queries(make_keys(3, 30)), 10))
        return everything, stored, _answers(index.search(VECTORS[60:62], 4, oversample=3)), index.info().refined_items


def ask_after_refining(folder: Path) -> Any:
    """Add so many items that the refinement is fitted again, and remove some; then change its kind, and return the same."""
    with LocalIndex.open_folder(folder) as index:
        index.add(VECTORS[10:80], make_keys(70, 40), keep_vectors=True)
        index.remove(make_keys(5, 12))
    found = ask_refined(folder)
    with LocalIndex.open_folder(folder) as index:
        refine_index(index, "code256", SkippedItems())
    return found, ask_refined(folder)


def build_model(folder: Path, seed: int) -> None:
    make_model(32, seed, folder)
    Calibration(np.linspace(1, 0, 33) ** (1 + seed), np.arange(33)).save(folder)


def ask_model(folder: Path) -> Any:
    hasher, calibration = Hasher.load(folder), Calibration.load(folder, 32)
    assert calibration is not None
    return hasher.encode(PIXELS).tolist(), hasher.classify(PIXELS), hasher.class_names, calibration.precision.tolist()


def build_proxies(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    design_proxies(10, 64, "random", seed=seed).save(folder / "proxies.safetensors")


def ask_proxies(folder: Path) -> Any:
    found = ProxySet.load(folder / "proxies.safetensors")
    if found.weights.tolist() == design_proxies(10, 64, "random", seed=1).weights.tolist():
        raise InputError("It was swapped for another complete proxy set, which is not damage.")
    return found.weights.tolist(), repr(found)


def build_shards(folder: Path, seed: int) -> None:
    for number in range(2):
        labels = [("cat",)] * 40
        keys = make_keys(40, 40 * number)
        shard = CodeShard(clustered_codes(40, 8, 2 * seed + number), keys, labels, 64, "m", "i", number, 2)
        write_shard(folder, shard)


def ask_shards(folder: Path) -> Any:
    shards = [read_shard(path) for path in sorted(folder.glob("*.npz"))]
    if any(np.array_equal(shard.codes, clustered_codes(40, 8, 2 + shard.number)) for shard in shards):
        raise InputError("It was swapped for a complete shard of another run, which is not damage.")
    return [(shard.codes.tolist(), shard.keys, shard.labels, shard.number) for shard in shards]


def build_code_file(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    labels = np.arange(300) % (3 + seed)
    np.savez(folder / "codes.npz", codes=clustered_codes(300, 8, seed), bits=np.int64(64), labels=labels)


def ask_code_file(folder: Path) -> Any:
    found = read_code_file(folder / "codes.npz")
    assert found.labels is not None
    if found.labels.max() == 3:
        raise InputError("It was swapped for another complete file, which is not damage.")
    return found.codes.tolist(), found.bits, found.labels.tolist()


SUBJECTS = (
    Subject("index", build_index, ask_index, ("-shm", ".lock")),
    Subject("index-with-log", build_index_with_log, ask_index, ("-shm", ".lock")),
    Subject("clustered-index", build_clustered_index, ask_index, ("-shm", ".lock")),
    Subject("labels", build_index, ask_by_label, ("-shm", ".lock")),
    Subject("photo-index", build_photo_index, ask_photo_index, ("-shm", ".lock", ".md")),
    Subject("vector-index", build_vector_index, ask_vector_index, ("-shm", ".lock", ".md")),
    Subject("columns", build_column_index, ask_columns, ("-shm", ".lock")),
    Subject("written-columns", build_column_index, ask_after_writing_columns, ("-shm", ".lock")),
    Subject("refinement", build_refined_index, ask_refined, ("-shm", ".lock", ".md")),
    Subject("written-refinement", build_refined_index, ask_after_refining, ("-shm", ".lock", ".md")),
    Subject("model", build_model, ask_model, (".md",)),
    Subject("proxies", build_proxies, ask_proxies),
    Subject("shards", build_shards, ask_shards),
    Subject("code-file", build_code_file, ask_code_file),
)
