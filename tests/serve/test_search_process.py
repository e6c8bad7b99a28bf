"""The search process: responses, batches, and replacement."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.service import make_code_index
from helpers.worker_targets import wait_until_ended
from proxyhash.index.base import Index
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.queries import EncodedQueries
from proxyhash.index.results import Matches
from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers import search_process
from proxyhash.serve.workers.channel import Channel
from proxyhash.serve.workers.process import report_ready
from proxyhash.serve.workers.search_process import SearchProcess
from proxyhash.serve.workers.searcher import Searcher, SearchQuery
from proxyhash.utils.errors import DamagedError, InputError

CODE = bytes(2)


def query(k: int = 5, *, row: bytes = CODE, is_embedding: bool = False, **options: Any) -> SearchQuery:
    return SearchQuery(row, is_embedding, k, **options)


def embedding(k: int = 5, **options: Any) -> SearchQuery:
    row = np.random.default_rng(3).normal(size=16).astype(np.float32)
    return query(k, row=row.tobytes(), is_embedding=True, **options)


@contextmanager
def searching(folder: Path, timeout_seconds: float = 60.0) -> Iterator[SearchProcess]:
    process = SearchProcess(folder, item_cache_size=100, threshold=0.5, timeout_seconds=timeout_seconds)
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_code_index(tmp_path_factory.mktemp("search") / "i")


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[SearchProcess]:
    with searching(folder) as process:
        process.start()
        yield process


def pid_of(process: SearchProcess) -> int:
    assert process.pid is not None
    return process.pid


def keys(result: bytes | Exception) -> list[str]:
    assert isinstance(result, bytes), result
    return [match["key"] for match in json.loads(result)["matches"]]


def test_response_is_that_of_the_index(process: SearchProcess, folder: Path) -> None:
    (response,) = process.search([query(3)])
    assert isinstance(response, bytes)
    with Index.open(folder) as index:
        (expected,) = index.search(np.zeros((1, 2), np.uint8), 3, with_codes=True)
    assert json.loads(response) == {
        "code": "0000",
        "bits": 16,
        "matched": None,
        "complete": True,
        "refined": False,
        "matches": [
            {
                "key": match.key,
                "distance": match.distance,
                "labels": list(match.labels),
                "code": (match.code or b"").hex(),
                "has_image": False,
                "expected_precision": None,
                "score": None,
                "columns": {},
            }
            for match in expected
        ],
    }


def test_queries_of_all_kinds_share_a_batch(process: SearchProcess) -> None:
    queries = [
        query(),
        embedding(),
        query(9),
        query(row=b"\0"),
        query(radius=0),
        embedding(rerank=20),
        query(rerank=9),
    ]
    results = process.search(queries)
    assert [len(keys(results[number])) for number in (0, 1, 2, 5)] == [5, 5, 9, 5]
    assert "Codes of 1 bytes do not fit an index of 16 bits" in str(results[3])
    assert "Re-ranking needs" in str(results[6])
    assert isinstance(results[3], InputError)
    assert [process.search([one])[0] for one in (queries[0], queries[5])] == [results[0], results[5]]
    assert process.search([]) == []


@pytest.mark.parametrize("options", [{}, {"radius": 5}, {"rerank": 10}, {"rerank": 10, "radius": 6}])
def test_response_does_not_depend_on_the_batch(folder: Path, options: dict[str, int]) -> None:
    searcher = Searcher(str(folder), 0, 0.5)
    queries = [embedding(k, **options) for k in (1, 8, 9, 15, 16)]
    together = searcher.search(queries)
    assert together == [searcher.search([one])[0] for one in queries]


@pytest.mark.parametrize(
    ("options", "is_complete"),
    [
        ({"k": 3}, True),  # k items were asked for
        ({"k": 3, "radius": 16}, True),
        ({"k": 500, "radius": 4}, True),
        ({"k": 1, "radius": 8}, False),  # there are more
        ({"k": 10, "radius": 5, "rerank": 400}, False),  # near items may have been left out by re-ranking
    ],
)
def test_complete_says_whether_there_may_be_more_items(
    process: SearchProcess, options: dict[str, Any], is_complete: bool
) -> None:
    (response,) = process.search([embedding(**options) if "rerank" in options else query(**options)])
    assert isinstance(response, bytes)
    assert json.loads(response)["complete"] is is_complete


def test_labels_filter_items(process: SearchProcess) -> None:
    filters: list[tuple[str, ...]] = [(), ("odd",), ("odd", "even"), ("absent",)]
    results = process.search([query(400, labels=labels) for labels in filters])
    assert [len(keys(result)) for result in results] == [400, 250, 400, 0]
    assert isinstance(results[1], bytes)
    assert {label for match in json.loads(results[1])["matches"] for label in match["labels"]} == {"odd"}


def test_invalid_query_does_not_fail_the_others_of_its_batch(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=12) as index:
        index.add(np.array([[1, 2], [3, 4]], np.uint8), ["a", "b"])
    searcher = Searcher(str(tmp_path / "i"), 0, 0.5)
    row = np.ones(12, np.float32)
    rows = [row, row * np.nan, row * np.inf, row[:11], row[:0]]
    embeddings = [query(2, row=one.tobytes(), is_embedding=True) for one in rows]
    codes = [query(2, row=one) for one in (b"\1\2", b"\1\x10", b"\1", b"")]
    replies = searcher.search([*embeddings, *codes])
    assert [len(keys(replies[number].response)) for number in (0, 5)] == [2, 2]
    failures = [reply.failure for reply in replies if reply.failure is not None]
    assert len(failures) == len(replies) - 2
    assert {failure.kind for failure in failures} == {"input"}


def test_relative_location_does_not_hide_the_fault_of_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_code_index(tmp_path / "i").parent)
    (reply,) = Searcher("i", 0, 0.5).search([query(row=b"\0")])
    assert reply.failure is not None
    assert reply.failure.kind == "input"


def test_queries_with_the_same_options_share_a_scan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = Searcher(str(folder), 0, 0.5)
    seen, usual = list[object](), LocalIndex.search

    def search(index: LocalIndex, queries: EncodedQueries, k: int, **options: Any) -> list[Matches]:
        seen.append((len(queries.codes), k, options.get("labels")))
        return usual(index, queries, k, **options)

    monkeypatch.setattr(LocalIndex, "search", search)
    searcher.search([query(), query(labels=("odd",)), query(4), query(8), query(6, labels=("odd",)), query(5, radius=9)])
    assert seen == [(2, 5, None), (2, 6, ("odd",)), (1, 8, None), (1, 5, None)]


def test_failed_search_says_where_and_others_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = Searcher(str(folder), 0, 0.5)
    usual = LocalIndex.search

    def fails_for_one(index: LocalIndex, rows: np.ndarray, k: int, **options: Any) -> list[Matches]:
        if k == 1:
            raise KeyError("broken")
        if k == 2:
            raise InputError(
                f"Another process is writing to {folder / 'index.sqlite'}; wait until it is done and try again."
            )
        return usual(index, rows, k, **options)

    monkeypatch.setattr(LocalIndex, "search", fails_for_one)
    failed, locked, answered = searcher.search([query(1), query(2), query(5)])
    assert failed.failure is not None
    error = failed.failure.exception()
    assert isinstance(error, RuntimeError)
    assert str(error).startswith("KeyError: 'broken', in ")
    assert "fails_for_one" in str(error)
    assert locked.failure is not None
    busy = locked.failure.exception()
    assert isinstance(busy, BusyError)
    assert str(busy) == "The index cannot be read at the moment; try again later."
    assert str(folder) in str(busy.__cause__)
    assert len(keys(answered.response)) == 5


def test_killed_process_is_replaced_and_the_batch_answered(folder: Path) -> None:
    with searching(folder) as process:
        assert process.state == "starting"
        process.start()
        before = pid_of(process)
        assert (process.state, process.restarts) == ("ready", 0)
        os.kill(before, signal.SIGKILL)
        assert len(keys(process.search([query()])[0])) == 5
        assert (process.state, process.restarts) == ("ready", 1)
        assert pid_of(process) != before


def test_process_killed_during_a_batch_is_replaced(folder: Path) -> None:
    with searching(folder) as process:
        process.start()
        os.kill(pid_of(process), signal.SIGSTOP)
        killer = threading.Timer(0.5, os.kill, (pid_of(process), signal.SIGKILL))
        killer.start()
        assert len(keys(process.search([query()])[0])) == 5
        killer.join()
        assert process.restarts == 1


def test_hung_process_is_replaced_and_the_batch_refused(folder: Path) -> None:
    with searching(folder, timeout_seconds=2.0) as process:
        process.start()
        before = pid_of(process)
        os.kill(before, signal.SIGSTOP)
        first, second = process.search([query(), query()])
        assert isinstance(first, BusyError)
        assert isinstance(second, BusyError)
        assert first is not second
        assert str(first) == "The search process is being restarted; try again in a moment."
        assert (process.state, process.restarts) == ("restarting", 1)
        assert wait_until_ended(before)
        assert process.search([]) == []
        assert process.state == "ready"
        assert len(keys(process.search([query()])[0])) == 5
        assert process.restarts == 1


def exit_when_asked(channel: Channel, *_: object) -> None:
    """Be a search process that every batch kills."""
    report_ready(channel)
    channel.receive()
    os._exit(1)


def test_batch_that_kills_two_processes_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_process, "run_searcher", exit_when_asked)
    with searching(folder) as process:
        process.start()
        assert isinstance(process.search([query()])[0], BusyError)
        assert process.restarts == 2


def test_process_that_does_not_start_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_process, "run_searcher", time.sleep)
    with searching(folder) as process, pytest.raises(RuntimeError, match="The search process does not start"):
        process.start()


def test_stop_ends_a_batch_from_another_thread(folder: Path) -> None:
    with searching(folder) as process:
        process.start()
        pid = pid_of(process)
        os.kill(pid, signal.SIGSTOP)
        stopper = threading.Timer(0.5, process.stop)
        stopper.start()
        assert isinstance(process.search([query()])[0], BusyError)
        stopper.join()
        assert process.pid is None
        assert wait_until_ended(pid)
        assert isinstance(process.search([query()])[0], BusyError)
        process.start()
        assert len(keys(process.search([query()])[0])) == 5


def test_unavailable_index_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_code_index(tmp_path / "i")
    with searching(folder) as process:
        process.start()
        for _ in range(2):
            folder.rename(tmp_path / "moved")
            for _ in range(3):
                assert isinstance(process.search([query()])[0], BusyError)
            (tmp_path / "moved").rename(folder)
            assert len(keys(process.search([query()])[0])) == 5
    assert [record.getMessage().startswith("The index cannot be read") for record in caplog.records] == [True, True]


def test_missing_index_is_an_input_error_at_the_start(tmp_path: Path) -> None:
    with searching(tmp_path / "absent") as process:
        with pytest.raises(InputError, match="There is no index at"):
            process.start()
        (result,) = process.search([query()])
        assert isinstance(result, BusyError)
        assert str(tmp_path) not in str(result)


def test_damaged_index_is_a_damaged_error_at_the_start(tmp_path: Path) -> None:
    damage(make_code_index(tmp_path / "i"))
    with searching(tmp_path / "i") as process, pytest.raises(DamagedError, match="is damaged"):
        process.start()


def damage(folder: Path) -> None:
    with sqlite3.connect(folder / "index.sqlite") as store:
        store.execute("UPDATE blocks SET codes = zeroblob(length(codes))")
    store.close()


def test_index_damaged_during_service_is_a_damaged_error(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i")
    with searching(folder) as process:
        process.start()
        damage(folder)
        os.kill(pid_of(process), signal.SIGKILL)  # so that the codes are read again
        assert isinstance(process.search([query()])[0], DamagedError)
        assert process.state == "restarting"


def test_items_damaged_during_service_are_a_damaged_error(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i")
    with searching(folder) as process:
        process.start()
        with sqlite3.connect(folder / "index.sqlite") as store:
            store.execute("DELETE FROM items")
        store.close()
        assert isinstance(process.search([query()])[0], DamagedError)
        assert process.restarts == 0


def test_replaced_index_is_searched_from_then_on(tmp_path: Path) -> None:
    folder, other = make_code_index(tmp_path / "i"), make_code_index(tmp_path / "other", count=3)
    wide = make_code_index(tmp_path / "wide", count=4, bits=32)
    with searching(folder) as process:
        process.start()
        assert len(keys(process.search([query()])[0])) == 5
        shutil.move(folder, tmp_path / "old")
        (missing,) = process.search([query()])
        assert isinstance(missing, BusyError)
        shutil.move(other, folder)
        assert len(keys(process.search([query()])[0])) == 3
        with Index.open(folder) as index:
            index.add(np.zeros((1, 2), np.uint8), ["new"])
        assert keys(process.search([query(1)])[0]) == ["new"]
        shutil.move(folder, other)
        shutil.move(wide, folder)
        assert isinstance(process.search([query()])[0], InputError)
        assert len(keys(process.search([query(row=bytes(4))])[0])) == 4
        assert process.restarts == 0


COUNT_KERNELS = """
import sys
import numpy as np
from numba.core.registry import CPUDispatcher
from proxyhash.index.base import Index
from proxyhash.serve.workers.searcher import Searcher, SearchQuery

def compiled():
    functions = {id(f): f for name, m in sys.modules.items() if name.startswith("proxyhash") for f in vars(m).values()}
    return sum(len(f.signatures) for f in functions.values() if isinstance(f, CPUDispatcher))

def search():
    for count in (1, 5, 500):
        searcher.search([SearchQuery(bytes(8), False, 10, labels=("odd",))] * count)
        searcher.search([SearchQuery(bytes(8), False, k) for k in (1, 10, 400)] * count)
        searcher.search([SearchQuery(np.ones(64, np.float32).tobytes(), True, 5, 3, 50)] * count)

searcher = Searcher(sys.argv[1], 0, 0.5)
before = compiled()
search()
with Index.open(sys.argv[1]) as index:
    index.add(np.ones((3, 8), np.uint8), ["a", "b", "c"])
    index.remove(["a", "item 3"])
search()
print(before, compiled())
"""


def test_kernels_are_compiled_before_the_first_batch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNT_KERNELS, str(make_code_index(tmp_path / "i", bits=64))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    before, after = map(int, done.stdout.split())
    assert 0 < before == after


def test_large_batch_is_answered(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i", count=2_000)
    with searching(folder) as process:
        process.start()
        responses = process.search([query(1_000)] * 200)
        assert {len(keys(response)) for response in responses} == {1_000}
        assert sum(map(len, (response for response in responses if isinstance(response, bytes)))) > 10_000_000
