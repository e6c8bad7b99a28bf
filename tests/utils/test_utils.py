import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core import config
from threadpoolctl import threadpool_info

from proxyhash.utils import jit
from proxyhash.utils.atomic_io import atomic_write, check_writable, checksum
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import ordered_map, prefetch, single_threaded_blas
from proxyhash.utils.paths import cache_root as cache_root_of_user
from proxyhash.utils.random import generator, permutation


def test_streams_of_one_seed_are_stable_and_apart() -> None:
    draw = generator(3, "tammes", 1).random(4)
    np.testing.assert_array_equal(draw, generator(3, "tammes", 1).random(4))
    for other in (generator(4, "tammes", 1), generator(3, "tammes", 2), generator(3, "itq", 1), generator(3)):
        assert not np.array_equal(draw, other.random(4))


def test_permutations_stay_the_same_for_ever() -> None:
    assert permutation(10, 2019, "transfer", "quarters").tolist() == [1, 0, 8, 6, 9, 4, 5, 7, 3, 2]
    order = permutation(1000, 1, "x")
    assert sorted(order) == list(range(1000))
    assert not np.array_equal(order, permutation(1000, 2, "x"))
    assert not np.array_equal(order, permutation(1000, 1, "y"))
    assert permutation(0, 1).tolist() == []


def test_work_is_begun_ahead_of_whoever_reads() -> None:
    begun: list[int] = []

    def work() -> Iterator[int]:
        for item in range(6):
            begun.append(item)
            yield item

    seen = []
    for item in prefetch(work(), 2):
        seen.append((item, len(begun)))
    assert seen == [(0, 3), (1, 4), (2, 5), (3, 6), (4, 6), (5, 6)]
    assert list(prefetch(iter([1]), 5)) == [1]
    assert list(prefetch(iter(()), 2)) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads: int) -> None:
    assert list(ordered_map(lambda x: x * x, range(20), threads)) == [x * x for x in range(20)]


def test_whoever_stops_reading_cancels_the_rest() -> None:
    begun: list[int] = []
    hold = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item:
            hold.wait(5)
        return item

    results: Iterator[int] = ordered_map(work, range(50), threads=2)
    assert next(results) == 0
    hold.set()
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 50


def test_items_are_begun_only_some_ahead_of_whoever_reads() -> None:
    begun: list[int] = []
    results = ordered_map(begun.append, range(1000), threads=2)
    next(results)
    assert len(begun) < 50


def test_errors_in_a_thread_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(lambda x: 1 // x, [1, 0, 2], threads=2))


def test_blas_is_held_to_one_thread() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with single_threaded_blas():
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.bin"
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_bytes(b"half of the sec")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_unwritable_places_are_named_before_the_work(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep" / "file")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="Cannot write"):
            check_writable(path)


def test_checksums_are_the_published_kind(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert checksum(tmp_path / "abc", "md5") == "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    assert checksum(tmp_path / "abc", "sha256").startswith("ba7816bf8f01cfea")
    with pytest.raises(InputError, match=r"Cannot read .*absent: No such file or directory\."):
        checksum(tmp_path / "absent", "md5")


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path))
    assert cache_root_of_user() == tmp_path
    monkeypatch.setenv("PROXYHASH_CACHE", "")
    assert cache_root_of_user().name == "proxyhash"


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    jit.private_cache_folder.cache_clear()
    yield tmp_path / "cache"
    jit.private_cache_folder.cache_clear()


def double(x: int) -> int:
    return 2 * x


def test_compiled_code_is_cached_in_a_folder_of_the_user_alone(cache_root: Path) -> None:
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    assert jit.jit()(double)(21) == 42
    folder = cache_root / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("*.nbi"))
    assert config.CACHE_DIR == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("obstacle", ["open to others", "a file in the way"])
def test_without_a_private_folder_everything_still_works(cache_root: Path, obstacle: str) -> None:
    if obstacle == "open to others":
        (cache_root / "compiled").mkdir(parents=True)
        (cache_root / "compiled").chmod(0o777)
    else:
        cache_root.write_text("")
    assert jit.private_cache_folder() is None
    assert jit.jit()(double)(21) == 42
    assert not list(cache_root.rglob("*.nbi"))
