"""The list of what is stored in the user's cache, and its deletion."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.cached_rows import ACTIVATIONS, FEATURES, IMAGES, KEY, fill, interrupt, rows_of
from proxyhash.data.catalog import CIFAR10
from proxyhash.models import row_cache, runtime
from proxyhash.models.cache_clearing import CacheClearing, clear_cache
from proxyhash.models.cache_entries import CacheEntry, list_cache
from proxyhash.models.cache_kinds import RowSource, lock_path, parse_row_name
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import is_locked, try_lock

DAY = 86_400
COMPILED = "codes_" + "0f" * 20
WEIGHTS = "alexnet-owt-7be5be79.pth"
MODEL = "00112233aabbccdd"
ARCHIVE = "cifar-10-python.tar.gz"


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the number of rows after every batch of ten."""
    monkeypatch.setattr(runtime, "BATCH_SIZE", 10)
    monkeypatch.setattr(row_cache, "SAVE_EVERY", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a cache with one complete entry of each kind."""
    root = tmp_path / "cache"
    fill(rows_of(root))
    fill(rows_of(root, "activations", ACTIVATIONS))
    for path, size in (
        (root / "compiled" / COMPILED / "kernels.py311.nbi", 7),
        (root / "weights" / WEIGHTS, 500),
        (root / "data" / CIFAR10.folder / "test_batch", 3000),
        (root / "data" / ARCHIVE, 900),
        (root / "models" / MODEL / "config.json", 20),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    return root


def named(root: Path, name: str) -> CacheEntry:
    (entry,) = (entry for entry in list_cache(root) if entry.name == name)
    return entry


def names(clearing: CacheClearing) -> set[str]:
    return {entry.name for entry in clearing.deleted}


def reasons(clearing: CacheClearing) -> dict[str, str]:
    return {entry.name: reason for entry, reason in clearing.skipped}


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@contextmanager
def being_filled(root: Path) -> Iterator[None]:
    """Let another thread fill the features; it stops in the middle until the block ends."""
    reached, going_on = threading.Event(), threading.Event()

    def wait(_: str, fraction: float) -> None:
        if fraction > 0.5:
            reached.set()
            assert going_on.wait(60)

    filler = threading.Thread(target=fill, args=(rows_of(root), wait))
    filler.start()
    try:
        assert reached.wait(60)
        yield
    finally:
        going_on.set()
        filler.join(60)


def test_every_kind_is_listed(root: Path) -> None:
    entries = list_cache(root)
    assert [(entry.kind, entry.name) for entry in entries] == [
        ("features", FEATURES),
        ("activations", ACTIVATIONS),
        ("compiled", COMPILED),
        ("weights", WEIGHTS),
        ("data", CIFAR10.folder),
        ("data", ARCHIVE),
        ("models", MODEL),
    ]
    assert {entry.state for entry in entries} == {"complete"}
    assert [entry.num_bytes for entry in entries[2:]] == [7, 500, 3000, 900, 20]
    files = (path for path in (root / "features" / FEATURES).iterdir())
    assert entries[0].num_bytes == sum(path.stat().st_size for path in files) > IMAGES * 4 * 4


def test_rows_have_a_shape_and_what_their_name_says(root: Path) -> None:
    features, activations = list_cache(root)[:2]
    assert features.source == RowSource("digits", "convnet", 8, None, KEY)
    assert activations.source == RowSource("digits", "convnet", 8, 1, KEY[::-1])
    assert (features.shape, activations.shape) == ((IMAGES, 4), (IMAGES, 2, 2, 1))
    assert features.rows_done is None


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("my-own-photos-alexnet-224", ("my-own-photos", "alexnet", 224, None)),
        ("cifar100-efficientnet_lite0-224-upper5", ("cifar100", "efficientnet_lite0", 224, 5)),
        ("2024-12-convnet-32", ("2024-12", "convnet", 32, None)),
        ("a-timm-resnet18.a1_in1k-64", ("a", "timm/resnet18.a1_in1k", 64, None)),
        ("a-b-module-SmallNet-8-upper12", ("a-b", "module/SmallNet", 8, 12)),
    ],
)
def test_names_are_read_from_their_end(name: str, source: tuple[str, str, int, int | None]) -> None:
    assert parse_row_name(f"{name}-{KEY}") == RowSource(*source, key=KEY)
    assert parse_row_name(name) is None


def test_interrupted_entries_say_how_far_they_came(tmp_path: Path) -> None:
    interrupt(rows_of(tmp_path))
    entry = named(tmp_path, FEATURES)
    assert entry.state == "interrupted"
    assert entry.shape == (IMAGES, 4)
    assert entry.rows_done is not None
    assert IMAGES / 2 < entry.rows_done < IMAGES
    assert entry.rows_done % 10 == 0
    fill(rows_of(tmp_path))
    assert named(tmp_path, FEATURES).state == "complete"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"done": "all"}', '{"done": true}', "\xff"])
def test_damaged_files_are_listed_without_what_they_would_say(tmp_path: Path, content: str) -> None:
    interrupt(rows_of(tmp_path))
    (tmp_path / "features" / FEATURES / "progress.json").write_text(content, encoding="latin-1")
    (tmp_path / "features" / FEATURES / "features.part").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'shape': (__im")
    entry = named(tmp_path, FEATURES)
    assert (entry.state, entry.shape, entry.rows_done) == ("interrupted", None, 0)


def test_interrupted_download_and_leftovers_are_told_from_work_in_progress(root: Path) -> None:
    part = root / "data" / f"{ARCHIVE}.part"
    part.write_bytes(b"beginning")
    folders = [
        root / "data" / f".{CIFAR10.folder}-ab12_xyz",
        root / "models" / f".{MODEL}-old-ab12_xyz",
        root / "features" / ".cleared-ab12_xyz",
        root / f".models-{'0a' * 16}",
    ]
    for folder in folders:
        folder.mkdir()
    temporary = {part.name, *(folder.name for folder in folders)}
    states = {entry.name: entry.state for entry in list_cache(root) if entry.name in temporary}
    assert states == dict.fromkeys(temporary, "being filled")
    later = time.time() + 600
    states = {entry.name: entry.state for entry in list_cache(root, now=later) if entry.name in temporary}
    assert states.pop(part.name) == "interrupted"
    assert states == {folder.name: "leftover" for folder in folders}
    assert not names(clear_cache(["data", "models", "features"], root=root)) & temporary
    assert temporary <= names(clear_cache(["data", "models", "features"], root=root, now=later))
    assert not any(path.exists() for path in (part, *folders))


def test_reading_rows_is_use_and_listing_them_is_not(root: Path) -> None:
    before = named(root, FEATURES).last_used
    time.sleep(0.05)
    assert named(root, FEATURES).last_used == before
    rows_of(root).read()
    assert named(root, FEATURES).last_used > before


def test_without_a_cache_nothing_is_listed_or_created(tmp_path: Path) -> None:
    missing, empty, file = tmp_path / "missing", tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    file.write_text("")
    for folder in (missing, empty, file):
        assert list_cache(folder) == []
        assert clear_cache(root=folder) == CacheClearing((), ())
    assert everything(tmp_path) == {empty, file}


def test_only_what_is_computed_again_is_deleted_without_names(root: Path) -> None:
    assert names(clear_cache(root=root)) == {FEATURES, ACTIVATIONS, COMPILED}
    assert {entry.kind for entry in list_cache(root)} == {"weights", "data", "models"}
    fill(rows_of(root))
    assert named(root, FEATURES).state == "complete"


def test_kinds_and_entries_are_deleted_by_name(root: Path) -> None:
    sizes = {entry.name: entry.num_bytes for entry in list_cache(root)}
    done = clear_cache(["weights", KEY, f"data/{ARCHIVE}"], root=root)
    assert names(done) == {WEIGHTS, FEATURES, ARCHIVE}
    assert done.num_bytes == sizes[WEIGHTS] + sizes[FEATURES] + sizes[ARCHIVE]
    assert done.skipped == ()
    left = {ACTIVATIONS, COMPILED, CIFAR10.folder, MODEL}
    assert {entry.name for entry in list_cache(root)} == left
    assert list((root / "features").iterdir()) == []
    assert names(clear_cache(["activations/", CIFAR10.folder, "models"], root=root)) == left - {COMPILED}


@pytest.mark.parametrize("name", ["kernels", "other", "..", "../cache", "/", "features/..", ""])
def test_unknown_name_is_one_sentence_and_deletes_nothing(root: Path, name: str) -> None:
    before = everything(root.parent)
    kinds = "features, activations, compiled, weights, data, models"
    with pytest.raises(InputError, match=rf"^There is no kind or entry '.*' in the cache; the kinds are {kinds}\.$"):
        clear_cache(["features", name], root=root)
    assert everything(root.parent) == before


def test_age_is_that_of_the_last_use(root: Path) -> None:
    now = time.time()
    assert clear_cache(root=root, older_than=1, now=now + 0.9 * DAY) == CacheClearing((), ())
    long_ago = now - 90 * DAY
    for path in (root / "weights" / WEIGHTS, root / "compiled" / COMPILED / "kernels.py311.nbi"):
        os.utime(path, (now + 2 * DAY, long_ago))  # written long ago, and read since
    done = clear_cache(["features", "weights", "compiled", "models"], root=root, older_than=1, now=now + 2.5 * DAY)
    assert names(done) == {FEATURES, MODEL}
    assert done.skipped == ()


def test_files_of_archives_are_not_as_old_as_they_say(root: Path) -> None:
    for path in (root / "data" / CIFAR10.folder / "test_batch", root / "data" / CIFAR10.folder):
        os.utime(path, (0, 0))
    assert names(clear_cache(["data"], root=root, older_than=1)) == set()


def test_dry_run_deletes_nothing_and_tells_what_would_go(root: Path) -> None:
    before = everything(root)
    with try_lock(lock_path(root / "activations" / ACTIVATIONS)):
        tried = clear_cache(["features", "activations"], root=root, dry_run=True)
    lock_path(root / "activations" / ACTIVATIONS).unlink()
    assert everything(root) == before
    assert names(tried) == {FEATURES}
    assert reasons(tried) == {ACTIVATIONS: "another process fills it"}
    assert tried.num_bytes == named(root, FEATURES).num_bytes


def test_entry_that_is_filled_meanwhile_is_skipped_and_completed(root: Path) -> None:
    clear_cache(["features"], root=root)
    with being_filled(root):
        assert named(root, FEATURES).state == "being filled"
        assert named(root, FEATURES).rows_done
        done = clear_cache(root=root)
        assert reasons(done) == {FEATURES: "another process fills it"}
        assert names(done) == {ACTIVATIONS, COMPILED}
    assert len(rows_of(root).read().values) == IMAGES
    assert names(clear_cache(root=root)) == {FEATURES}


def test_process_that_is_killed_leaves_an_entry_that_can_be_deleted(root: Path) -> None:
    lock_path(root / "features" / FEATURES).touch()
    assert named(root, FEATURES).state == "complete"
    assert names(clear_cache(["features"], root=root)) == {FEATURES}
    assert everything(root / "features") == set()


def test_deleted_lock_excludes_nobody_so_waiting_processes_lock_the_new_one(root: Path) -> None:
    rows = rows_of(root)
    path = lock_path(rows.entry)
    seen: list[bool] = []

    def wait() -> None:
        with rows._lock():
            seen.append(is_locked(path))

    with try_lock(path):
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.2)  # it waits for the file that is deleted now
        assert not seen
        path.unlink()
    waiter.join(60)
    assert seen == [True]


def test_links_are_neither_followed_nor_deleted(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    fill(rows_of(outside))
    (outside / "precious.txt").write_text("precious")
    before = everything(outside)
    linked = f"linked-convnet-8-{KEY}"
    (root / "features" / linked).symlink_to(outside / "features" / FEATURES, target_is_directory=True)
    (root / "features" / FEATURES / "link").symlink_to(outside, target_is_directory=True)
    (root / "features" / FEATURES / "file").symlink_to(outside / "precious.txt")
    (root / "weights" / WEIGHTS).unlink()
    (root / "weights" / WEIGHTS).symlink_to(outside / "precious.txt")
    (root / "compiled").rename(tmp_path / "compiled")
    (root / "compiled").symlink_to(tmp_path / "compiled", target_is_directory=True)
    links = {linked, WEIGHTS, "compiled"}
    assert {entry.name: entry.num_bytes for entry in list_cache(root) if entry.state == "symbolic link"} == dict.fromkeys(
        links, 0
    )
    done = clear_cache(["features", "weights", "compiled"], root=root)
    assert names(done) == {FEATURES}
    assert reasons(done) == dict.fromkeys(links, "it is a symbolic link")
    assert everything(outside) == before
    assert (outside / "precious.txt").read_text() == "precious"
    assert (tmp_path / "compiled" / COMPILED / "kernels.py311.nbi").exists()


def test_root_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    assert len(list_cache(tmp_path / "link")) == 7
    assert names(clear_cache(["features"], root=tmp_path / "link")) == {FEATURES}
    assert not (root / "features" / FEATURES).exists()


def test_what_proxyhash_did_not_write_is_listed_and_stays(root: Path) -> None:
    """A cache folder may be a home folder, with folders called data and models."""
    own = ["data/thesis/chapter.txt", "data/ilsvrc2012/train/1.JPEG", "models/best/weights.bin", "features/notes.txt",
           "weights/mine.pth", "photos/1.png", ".bashrc", "compiled/readme.md", ".cache/other/file",
           f"weights/{WEIGHTS}.d/x", f"features/{KEY}/x"]  # fmt: skip
    for name in own:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    unknown = {(entry.kind, entry.name) for entry in list_cache(root) if entry.state == "unknown"}
    assert unknown == {
        ("data", "thesis"), ("data", "ilsvrc2012"), ("models", "best"), ("features", "notes.txt"), ("weights", "mine.pth"),
        ("other", "photos"), ("other", ".bashrc"), ("compiled", "readme.md"), ("other", ".cache"),
        ("weights", f"{WEIGHTS}.d"), ("features", KEY),
    }  # fmt: skip
    kinds = ["features", "activations", "compiled", "weights", "data", "models"]
    done = clear_cache([*kinds, "photos", "thesis"], root=root, now=time.time() + 600)
    assert len(done.deleted) == 7
    assert set(reasons(done).values()) == {"proxyhash did not write it"}
    assert {entry.name for entry, _ in done.skipped} == {name for kind, name in unknown if kind != "other"} | {"photos"}
    assert all((root / name).read_text() == name for name in own)


def test_entry_that_cannot_be_deleted_is_named_with_the_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if path.name == MODEL:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    done = clear_cache(["models", "weights"], root=root)
    assert reasons(done) == {MODEL: "Permission denied"}
    assert names(done) == {WEIGHTS}
    assert everything(root / "models") == {root / "models" / MODEL, root / "models" / MODEL / "config.json"}


def test_neither_torch_nor_compiled_code_is_loaded(root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from proxyhash.models.cache_clearing import clear_cache;"
        f"print(len(clear_cache(root=Path({str(root)!r})).deleted), 'torch' in sys.modules, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False", "False"]
