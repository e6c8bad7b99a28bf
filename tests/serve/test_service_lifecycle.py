"""A service that is stopped, killed, or started wrongly: nothing is lost, and every client gets an answer."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from helpers.service import RunningService, make_code_index, serving
from helpers.wire import BODY, REQUEST, Wire
from proxyhash.cli.app import main
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import verify
from proxyhash.serve import server
from proxyhash.serve.settings import Settings
from proxyhash.utils.errors import InputError

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists the open files of a process")


def search(running: RunningService) -> httpx.Response:
    with running.client() as client:
        return client.post("/api/v1/search", json={"code": "0000"})


def test_sigterm_finishes_open_requests(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running, Wire(running) as wire:
        wire.send(REQUEST[: -len(BODY)] + BODY[:5])
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        wire.send(BODY[5:])
        assert wire.response().status == 200
        assert running.process.wait(30) == 0


def test_kill_loses_no_confirmed_change(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 10)) as running:
        confirmed: list[str] = []
        failed: list[str] = []

        def add(number: int) -> None:
            item = {"key": f"new {number}", "code": f"{number % 65536:04x}"}
            try:
                assert client.post("/api/v1/items", json={"items": [item]}).json()["added"] == 1
                confirmed.append(item["key"])
            except httpx.TransportError:
                failed.append(item["key"])

        with running.writer() as client, ThreadPoolExecutor(8) as threads:
            added = [threads.submit(add, number) for number in range(300)]
            while len(confirmed) < 20:
                time.sleep(0.01)
            running.process.kill()
            for one in added:
                one.result()
    assert failed
    with LocalIndex.open_folder(tmp_path / "i") as index:
        assert verify(index).ok
        for key in confirmed:
            assert index.item(key).key == key


def search_processes(running: RunningService) -> set[int]:
    """Return the processes besides the server that have its index open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            opened = {file.readlink() for file in (process / "fd").iterdir()}
            if running.index / "index.sqlite" in opened:
                found.add(int(process.name))
    return found - {running.process.pid, os.getpid()}


@needs_proc
def test_dead_search_process_is_replaced(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running, running.client() as client:
        (before,) = search_processes(running)
        os.kill(before, signal.SIGKILL)
        response = search(running)
        assert response.status_code in {200, 503}
        again = search(running)
        assert (again.status_code, len(again.json()["matches"])) == (200, 10)
        assert "proxyhash_search_process_restarts_total 1.0" in client.get("/metrics").text
        (after,) = search_processes(running)
        assert after != before


@needs_proc
def test_hung_search_process_is_replaced_and_shows_in_ready(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i"), search_seconds=2.0) as running, running.client() as client:
        (before,) = search_processes(running)
        os.kill(before, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as thread:
            hung = thread.submit(search, running)
            states = []
            while not hung.done():
                states.append(client.get("/ready").status_code)
                time.sleep(0.05)
            assert hung.result().status_code in {200, 503}  # 200: the probe noticed it first, and the search was tried again
        assert 503 in states
        deadline = time.monotonic() + 60
        while client.get("/ready").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert search(running).status_code == 200


@needs_proc
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_service_leaves_no_process_behind(tmp_path: Path, workers: int) -> None:
    with serving(make_code_index(tmp_path / "i"), config={"workers": workers}) as running:
        assert search_processes(running)
        running.process.kill()
        for _ in range(400):
            if not search_processes(running):
                break
            time.sleep(0.05)
        assert not search_processes(running)


def test_connections_are_refused_until_several_workers_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that waits at a port that is closed and bound again would be reset."""
    monkeypatch.setattr(server, "_run_workers", lambda *_: None)
    outcomes: list[type] = []

    def connect(url: str) -> None:
        address = urlsplit(url)
        try:
            socket.create_connection((str(address.hostname), int(address.port or 0))).close()
        except OSError as error:
            outcomes.append(type(error))

    server.serve(str(make_code_index(tmp_path / "i")), Settings(), server.ServerConfig(port=0, workers=2), connect)
    assert outcomes == [ConnectionRefusedError]


def test_replaced_index_folder_is_opened_again(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 50)) as running, running.writer() as client:
        assert client.get("/api/v1/info").json()["items"] == 50
        make_code_index(tmp_path / "other", 7)
        (tmp_path / "i").rename(tmp_path / "old")
        (tmp_path / "other").rename(tmp_path / "i")
        assert len(client.post("/api/v1/search", json={"code": "0000", "k": 100}).json()["matches"]) == 7
        assert client.get("/api/v1/info").json()["items"] == 7
        new = {"items": [{"key": "new", "code": "ffff"}]}
        assert client.post("/api/v1/items", json=new).json() == {"added": 1, "replaced": 0}
        matches = client.post("/api/v1/search", json={"code": "ffff", "k": 1}).json()["matches"]
        assert (matches[0]["key"], matches[0]["distance"]) == ("new", 0)


def test_missing_index_folder_is_503_without_paths(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 50)) as running, running.writer() as client:
        (tmp_path / "i").rename(tmp_path / "away")
        for response in (
            client.post("/api/v1/search", json={"key": "item 3"}),
            client.get("/api/v1/items/item 3"),
            client.post("/api/v1/items", json={"items": [{"key": "new", "code": "ffff"}]}),
        ):
            assert response.status_code == 503
            assert str(tmp_path) not in response.text
        (tmp_path / "away").rename(tmp_path / "i")
        assert client.post("/api/v1/search", json={"key": "item 3"}).status_code == 200


def test_damaged_index_is_500_without_paths(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i")) as running:
        with sqlite3.connect(running.index / "index.sqlite") as store:
            store.execute("UPDATE blocks SET codes = zeroblob(length(codes))")
        store.close()
        # Another process adds an item, so that the codes are read again.
        with suppress(InputError), LocalIndex.open_folder(running.index) as index:
            index.add(np.zeros((1, 2), np.uint8), ["new"])
        with running.client() as client:
            response = client.post("/api/v1/search", json={"key": "item 3"})
        assert response.status_code == 500
        assert response.json()["detail"] == "The index is damaged; the log of the service has the details."
        assert str(tmp_path) not in response.text
        assert "damaged" in running.log.read_text(encoding="utf-8")


def test_damaged_index_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i")
    with sqlite3.connect(folder / "index.sqlite") as store:
        store.execute("UPDATE blocks SET codes = zeroblob(length(codes))")
    store.close()
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()", "serve", str(folder), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "damaged" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_several_workers_serve_one_index(tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i"), config={"workers": 2}) as running, running.writer() as client:
        assert client.post("/api/v1/items", json={"items": [{"key": "new", "code": "ffff"}]}).json()["added"] == 1
        for _ in range(40):
            assert search(running).status_code == 200  # each on a new connection
            matches = client.post("/api/v1/search", json={"code": "ffff", "k": 1}).json()["matches"]
            assert matches[0]["key"] == "new"
        text = client.get("/metrics").text
        line = next(line for line in text.splitlines() if line.startswith("proxyhash_requests_total") and "search" in line)
        assert float(line.split()[-1]) == 80


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["absent"], "There is no index at absent"),
        (["i", "--port", "70000"], "The port must be from 0 to 65535, not 70000."),
        (["i", "--port", "x"], "it must be a whole number, not x."),
        (["i", "--host", "no.such.host.invalid"], "There is no address no.such.host.invalid"),
        (["i", "--token-file", "absent"], "The token cannot be read from absent"),
        (["i", "--decoders", "0"], "There must be at least 1 decoder, not 0."),
        (["i", "--workers", "0"], "There must be at least 1 worker, not 0."),
        (["i", "--threshold", "1.5"], "The threshold must be from 0 to 1, not 1.5."),
        (["i", "--allow-origin", "example.org"], "such as https://example.org, not example.org."),
        (["i", "--root-path", "photos"], "The root path begins with a slash"),
        (["i", "--ssl-keyfile", "k"], "--ssl-keyfile needs --ssl-certfile."),
        (["i", "--ssl-certfile", "c"], "There is no file c."),
    ],
)
def test_mistakes_on_the_command_line_get_one_line(
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


def test_occupied_port_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit):
            main(["serve", str(make_code_index(tmp_path / "i", 1)), "--port", str(port)])
    assert f"Cannot listen at 127.0.0.1, port {port}" in capsys.readouterr().err


def test_exposed_address_is_warned_about(tmp_path: Path) -> None:
    folder = make_code_index(tmp_path / "i", 1)
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen([*command, "--host", "0.0.0.0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "http://0.0.0.0:" in process.stdout.readline()
    process.terminate()
    _, error = process.communicate(timeout=120)
    assert "Other machines can connect to 0.0.0.0" in error
    assert "not encrypted" in error


def test_missing_packages_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("proxyhash.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(SystemExit):
        main(["serve", str(tmp_path)])
    assert "The service needs fastapi: pip install 'proxyhash[serve]'." in capsys.readouterr().err
