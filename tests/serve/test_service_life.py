"""A service that is stopped, killed, held up or flooded: nothing is lost, and who waits gets an answer."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from helpers.service import Service, make_code_index, serving
from proxyhash.cli.app import main
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import verify
from proxyhash.index.results import Matches
from proxyhash.serve.batching import Batcher
from proxyhash.serve.http import RefusalError
from proxyhash.serve.searcher import Query, Searcher

REQUEST = (
    b"POST /api/search/code HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
)


def connected(running: Service) -> socket.socket:
    url = httpx.URL(running.url)
    return socket.create_connection((url.host, url.port or 0), timeout=20)


def test_a_stop_finishes_what_is_under_way(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running, connected(running) as connection:
        connection.sendall(REQUEST + b'{"code":')
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        connection.sendall(b'"0000"}')
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert running.process.wait(20) == 0
        assert json.loads(running.log.read_text(encoding="utf-8").splitlines()[-1])["event"] == "stopped"


def test_a_kill_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 10)) as running:
        confirmed: list[str] = []
        failed: list[str] = []

        def add(number: int) -> None:
            item = {"key": f"new {number}", "code": f"{number % 65536:04x}"}
            try:
                assert client.post("/api/add/codes", json={"items": [item]}).json()["added"] == 1
                confirmed.append(item["key"])
            except httpx.TransportError:
                failed.append(item["key"])

        with running.writer() as client, ThreadPoolExecutor(8) as threads:
            done = [threads.submit(add, number) for number in range(300)]
            while len(confirmed) < 20:
                time.sleep(0.01)
            running.process.kill()
            for one in done:
                one.result()
    assert failed
    with LocalIndex.open_folder(tmp_path / "i") as index:
        assert verify(index).ok
        for key in confirmed:
            assert index.item(key).key == key


def searching(running: Service) -> set[int]:
    """Return the processes beside the service that have its index open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is not ours
            opened = {file.readlink() for file in (process / "fd").iterdir()}
            if running.index / "index.sqlite" in opened:
                found.add(int(process.name))
    return found - {running.process.pid, os.getpid()}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="who has a file open is told by Linux")
def test_a_search_process_that_dies_is_begun_anew(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running, running.client() as client:
        (before,) = searching(running)
        os.kill(before, signal.SIGKILL)
        cut_off = client.post("/api/search/code", json={"code": "0000"})
        assert (cut_off.status_code, cut_off.json()) == (503, {"error": "The search was cut off; ask again in a moment."})
        again = client.post("/api/search/code", json={"code": "0000"})
        assert (again.status_code, len(again.json()["matches"])) == (200, 10)
        assert "proxyhash_searches_replaced_total 1" in client.get("/metrics").text
        (after,) = searching(running)
        assert after != before


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="who has a file open is told by Linux")
def test_a_killed_service_leaves_no_process_behind(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running:
        assert searching(running)
        running.process.kill()
        for _ in range(200):
            if not searching(running):
                break
            time.sleep(0.05)
        assert not searching(running)


def test_an_index_that_cannot_be_searched_ends_the_service_with_a_sentence(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i")
    with sqlite3.connect(folder / "index.sqlite") as store:
        store.execute("UPDATE blocks SET codes = zeroblob(length(codes))")
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()", "serve", str(folder), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "damaged" in done.stderr.splitlines()[-1]


def test_a_search_that_fails_says_where_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = Searcher(make_code_index(tmp_path / "i"), 0, 0.5)
    query = Query(b"\0\0", real=False, k=1, radius=16)
    usual = LocalIndex.search

    def fails_for_one(index: LocalIndex, rows: np.ndarray, k: int, **options: Any) -> list[Matches]:
        if k == 1:
            raise RuntimeError("broken")
        return usual(index, rows, k, **options)

    monkeypatch.setattr(LocalIndex, "search", fails_for_one)
    failed, answered, refused = searcher.answer([query, Query(b"\0\0", False, 5, 16), Query(b"\0", False, 9, 16)])
    assert failed.failure.startswith("RuntimeError: broken, in ")
    assert "fails_for_one" in failed.failure
    assert len(json.loads(answered.answer)["matches"]) == 5
    assert "Codes of 1 bytes do not fit an index of 16 bits" in refused.refusal


def test_slow_clients_are_cut_off_and_hold_up_nobody(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i"), idle_seconds=1, body_seconds=1) as running:
        silent, in_headers, in_body = (connected(running) for _ in range(3))
        in_headers.sendall(REQUEST[:30])
        in_body.sendall(REQUEST + b'{"co')
        with running.client() as client:
            assert client.post("/api/search/code", json={"code": "0000"}).status_code == 200
        assert silent.recv(100) == b""
        assert in_headers.recv(100) == b""
        answer = b"".join(iter(lambda: in_body.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 1 seconds" in answer
        with connected(running) as endless:
            endless.sendall(b"GET / HTTP/1.1\r\nA: ")
            with pytest.raises(OSError, match=r".*"):
                for _ in range(1000):
                    endless.sendall(b"a" * 10_000)
        for connection in (silent, in_headers, in_body):
            connection.close()


class Slow:
    """Work that waits until it is told to go on, and notes how many questions came together."""

    def __init__(self) -> None:
        self.go, self.batches = threading.Event(), list[int]()

    def __call__(self, questions: Sequence[int]) -> list[int | Exception]:
        self.go.wait(10)
        self.batches.append(len(questions))
        return [ValueError("odd") if question % 2 else 10 * question for question in questions]


def test_questions_are_answered_together_and_too_many_are_refused() -> None:
    work = Slow()

    async def ask() -> list[int | BaseException]:
        batcher = Batcher("test", work, together=3, waiting=5)
        first = asyncio.create_task(batcher.ask(0))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(batcher.ask(number)) for number in range(2, 8)]
        await asyncio.sleep(0.05)
        assert len(batcher) == 5
        work.go.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        batcher.close()
        return list(answers)

    answers = asyncio.run(ask())
    assert work.batches == [1, 3, 2]
    assert answers[:2] == [0, 20]
    assert str(answers[2]) == "odd"
    refused = answers[-1]
    assert isinstance(refused, RefusalError)
    assert (refused.status, refused.headers) == (503, {"Retry-After": "1"})


def test_what_fails_altogether_fails_for_each() -> None:
    def work(_: Sequence[int]) -> list[int | Exception]:
        raise RuntimeError("broken")

    async def ask() -> list[int | BaseException]:
        batcher = Batcher("test", work, together=3, waiting=5)
        return list(await asyncio.gather(*map(batcher.ask, range(3)), return_exceptions=True))

    assert [str(answer) for answer in asyncio.run(ask())] == ["broken"] * 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["absent"], "There is no index at absent"),
        (["i", "--port", "70000"], "The port must be from 0 to 65535, not 70000."),
        (["i", "--port", "x"], "it must be a whole number, not x."),
        (["i", "--host", "no.such.host.invalid"], "There is no address no.such.host.invalid"),
        (["i", "--token-file", "absent"], "The token cannot be read from absent"),
        (["i", "--decoders", "0"], "There must be at least 1 decoder, not 0."),
    ],
)
def test_mistakes_on_the_command_line_are_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_code_index(tmp_path / "i", 1)
    with pytest.raises(SystemExit) as stopped:
        main(["serve", *options])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert sentence in error
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit):
            main(["serve", str(make_code_index(tmp_path / "i", 1)), "--port", str(port)])
    assert f"Cannot listen at 127.0.0.1, port {port}" in capsys.readouterr().err


def test_without_its_packages_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("proxyhash.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit):
        main(["serve", str(tmp_path)])
    assert "The service needs uvicorn: pip install 'proxyhash[serve]'." in capsys.readouterr().err
