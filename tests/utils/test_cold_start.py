"""The first jobs of a process, which numpy does, against compiled functions."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash import codes
from proxyhash.data.crop import sample_compiled, sample_numpy
from proxyhash.index import Index
from proxyhash.index.clusters.clustered import ClusteredSegment
from proxyhash.index.clusters.word_segment import WordSegment
from proxyhash.index.local.index import LocalIndex
from proxyhash.utils.jit import NUMPY_SECONDS, ColdStart, cold_start


def test_numpy_does_small_jobs_until_they_add_up() -> None:
    start = ColdStart()
    assert all(start.use_numpy(NUMPY_SECONDS / 4) for _ in range(3))
    assert not start.use_numpy(NUMPY_SECONDS)
    assert not start.use_numpy(0.0)


def test_compiled_functions_do_all_jobs_after_the_end() -> None:
    start = ColdStart()
    start.end()
    assert not start.use_numpy(1e-9)


@given(st.data())
def test_crops_are_equal_to_the_last_bit(data: st.DataObject) -> None:
    height, width, size = (data.draw(st.integers(1, 40)) for _ in range(3))
    left, top, wide, high = (data.draw(st.floats(0, 1)) for _ in range(4))
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    box = (left * width, top * height, wide * width, high * height, data.draw(st.booleans()))
    ours, compiled = (np.empty((size, size, 3), np.float32) for _ in range(2))
    sample_numpy(pixels, *box, ours)
    sample_compiled(pixels, *box, compiled)
    np.testing.assert_array_equal(ours, compiled)


@pytest.mark.parametrize("width", [1, 3, 8, 40])
@pytest.mark.parametrize("k", [1, 7, 300])
def test_neighbors_are_equal(width: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(width)
    queries, database = (random.integers(0, 4, (count, width), dtype=np.uint8) for count in (4, 200))
    compiled = codes.top_k(queries, database, k), codes.range_search(queries, database, width)
    monkeypatch.setattr(cold_start, "seconds", NUMPY_SECONDS)
    ours = codes.top_k(queries, database, k), codes.range_search(queries, database, width)
    assert 0 < cold_start.seconds < NUMPY_SECONDS  # numpy did it
    for found, expected in zip(ours, compiled, strict=True):
        for name, values in vars(expected).items():
            np.testing.assert_array_equal(getattr(found, name), values)
            assert getattr(found, name).dtype == values.dtype


def make_clustered_index(folder: Path) -> None:
    """Make an index of 70,000 codes around 100 centers, which are stored in clusters."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (100, 8), dtype=np.uint8)[random.integers(0, 100, 70_000)]
    codes[np.arange(70_000), random.integers(0, 8, 70_000)] ^= 1
    with Index.open(folder, bits=64) as index:
        index.add(codes, keys=[f"{number:05d}" for number in range(70_000)])


def test_clusters_are_built_when_the_cold_start_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clustered_index(tmp_path / "index")
    query = np.zeros((1, 8), np.uint8)
    with LocalIndex.open_folder(tmp_path / "index") as index:
        expected = index.search(query, k=20)[0].matches
        assert isinstance(index.snapshots.latest().main, ClusteredSegment)
    monkeypatch.setattr(cold_start, "seconds", NUMPY_SECONDS)
    with LocalIndex.open_folder(tmp_path / "index") as index:
        assert index.search(query, k=20)[0].matches == expected
        assert isinstance(index.snapshots.latest().main, WordSegment)
        cold_start.end()
        assert index.search(query, k=20)[0].matches == expected
        assert isinstance(index.snapshots.latest().main, ClusteredSegment)


def test_many_queries_of_a_cold_start_use_compiled_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clustered_index(tmp_path / "index")
    queries = np.random.default_rng(1).integers(0, 256, (500, 8), dtype=np.uint8)
    with LocalIndex.open_folder(tmp_path / "index") as index:
        expected = [found.matches for found in index.search(queries, k=5)]
        within = [found.matches for found in index.range_search(queries, 12)]
    monkeypatch.setattr(cold_start, "seconds", NUMPY_SECONDS)
    with LocalIndex.open_folder(tmp_path / "index") as index:
        assert index.snapshots.latest().is_cold
        assert [found.matches for found in index.search(queries, k=5)] == expected
        assert cold_start.is_over
        assert [found.matches for found in index.range_search(queries, 12)] == within


def test_searching_clusters_only_ends_the_cold_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    make_clustered_index(tmp_path / "index")
    monkeypatch.setattr(cold_start, "seconds", NUMPY_SECONDS)
    with LocalIndex.open_folder(tmp_path / "index") as index:
        assert len(index.search(np.zeros((1, 8), np.uint8), k=5, nprobe=3)[0]) == 5
        assert cold_start.is_over


def test_one_search_compiles_nothing(tmp_path: Path) -> None:
    make_clustered_index(tmp_path / "index")
    program = (
        "import sys; import numpy as np; from proxyhash import Index; from numba.core.registry import cpu_target\n"
        "from numba.core.dispatcher import _DispatcherBase as Base\n"
        "def refuse(*_): raise AssertionError('a compiled function was called')\n"
        "Base._compile_for_args = refuse\n"
        "with Index.open(sys.argv[1]) as index: assert len(index.search(np.zeros((1, 8), np.uint8))[0]) == 10"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "index")], check=True)
