"""Worker processes: messages, time limits, signals, and the end of the service."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers import worker_targets
from helpers.worker_targets import is_running, wait_until_ended
from proxyhash.serve.workers.process import WorkerProcess
from proxyhash.utils.errors import DamagedError

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="processes are observed as Linux shows them")


@contextmanager
def worker(target: Any = worker_targets.echo) -> Iterator[WorkerProcess]:
    process = WorkerProcess("test", target)
    try:
        yield process
    finally:
        process.stop()


def test_messages_of_any_size_are_answered() -> None:
    with worker() as process:
        process.wait_ready(60)
        for size in (0, 1, 65_535, 65_536, 30_000_000):
            message = os.urandom(size)
            assert process.call(message, timeout=60) == message


def test_reply_above_the_limit_is_an_end() -> None:
    with worker() as process:
        process.wait_ready(60)
        assert len(process.call(b"size 100", timeout=60, max_bytes=100)) == 100
        with pytest.raises(EOFError, match="A message has 101 bytes, more than 100"):
            process.call(b"size 101", timeout=60, max_bytes=100)


def test_start_failure_is_raised() -> None:
    with worker(worker_targets.fail_to_start) as process, pytest.raises(DamagedError, match="The index is damaged"):
        process.wait_ready(60)


def test_process_that_exits_is_an_end() -> None:
    with worker(worker_targets.exit_at_once) as process, pytest.raises(EOFError):
        process.wait_ready(60)
    with worker() as process:
        process.wait_ready(60)
        with pytest.raises(EOFError):
            process.call(b"exit", timeout=60)
        with pytest.raises(EOFError):
            process.call(b"again", timeout=60)


def test_hang_is_a_timeout() -> None:
    with worker() as process:
        process.wait_ready(60)
        with pytest.raises(TimeoutError):
            process.call(b"hang", timeout=0.2)
    assert wait_until_ended(process.pid)


def test_process_stopped_in_the_middle_of_a_reply_is_a_timeout() -> None:
    with worker() as process:
        process.wait_ready(60)
        process._channel.send(b"size 50000000")
        time.sleep(0.5)  # the buffer of the socket is full, and the rest waits
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            process._channel.receive(1.0)


def test_stopped_process_that_does_not_read_is_a_timeout() -> None:
    with worker() as process:
        process.wait_ready(60)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            process.call(bytes(50_000_000), timeout=1.0)
    assert wait_until_ended(process.pid)


def test_kill_ends_a_call_in_another_thread() -> None:
    with worker() as process:
        process.wait_ready(60)
        timer = threading.Timer(0.3, process.kill)
        timer.start()
        with pytest.raises(EOFError):
            process.call(b"hang", timeout=60)
        timer.join()


def test_workers_start_without_a_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with worker() as process:
        process.wait_ready(60)
        assert process.call(b"message", timeout=60) == b"message"
    assert wait_until_ended(process.pid)


def test_main_module_is_not_imported() -> None:
    with worker(worker_targets.report_main_module) as process:
        process.wait_ready(60)
        assert "pytest" not in process.call(b"", timeout=60).decode()


def test_restarts_leave_no_open_files() -> None:
    for number in range(12):
        with worker() as process:
            process.wait_ready(60)
        if number == 1:
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


SCRIPT = """
import os, signal, sys, threading, time
from multiprocessing import forkserver
from helpers import worker_targets
from proxyhash.serve.workers.process import WorkerProcess

def say(*words):
    print(*words, flush=True)

def start():
    process = WorkerProcess("test", worker_targets.echo)
    process.wait_ready(60)
    return process
"""


@contextmanager
def script(body: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a program in a process group of its own."""
    command = [sys.executable, "-c", SCRIPT + textwrap.dedent(body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def words(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_process_group_leaves_work_in_flight(number: signal.Signals) -> None:
    body = f"""
    signal.signal({number:d}, lambda *_: None)
    process = start()
    stopped = start()
    os.kill(stopped.pid, signal.SIGSTOP)
    say(process.pid, stopped.pid)
    say(process.call(b"sleep", timeout=60).decode())
    say(process.call(b"more", timeout=60).decode())
    other = start()
    say(other.call(b"other", timeout=60).decode())
    stopped.stop()
    process.stop()
    say("stopped")
    other.stop()
    """
    with script(body) as process:
        pids = list(map(int, words(process)))
        time.sleep(0.2)
        os.killpg(process.pid, number)
        assert [words(process) for _ in range(4)] == [["sleep"], ["more"], ["other"], ["stopped"]]
        assert wait_until_ended(*pids)
        assert process.wait(60) == 0


def test_killed_fork_server_is_started_again() -> None:
    body = """
    process = start()
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    say(process.call(b"first", timeout=60).decode())
    for _ in range(3):
        other = WorkerProcess("test", worker_targets.echo)
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        other.wait_ready(60)
        os.kill(other.pid, signal.SIGSTOP)
        other.stop()
        say(other.pid)
    """
    with script(body) as process:
        assert words(process) == ["first"]
        for _ in range(3):
            assert wait_until_ended(*map(int, words(process)))
        assert process.wait(60) == 0


def test_killed_service_leaves_no_process_behind() -> None:
    body = """
    idle, busy = start(), start()
    threading.Thread(target=busy.call, args=(b"hang",), daemon=True).start()
    time.sleep(0.3)
    say(idle.pid, busy.pid, forkserver._forkserver._forkserver_pid)
    time.sleep(3600)
    """
    with script(body) as process:
        pids = list(map(int, words(process)))
        assert all(map(is_running, pids))
        process.kill()
        assert wait_until_ended(*pids)


def test_program_that_forgets_its_workers_ends() -> None:
    with script("process = start()\nsay(process.pid)") as process:
        (pid,) = map(int, words(process))
        assert process.wait(60) == 0
        assert wait_until_ended(pid)


def test_workers_do_not_import_the_web_framework_or_torch() -> None:
    code = """
import sys
import proxyhash.serve.workers.preload, proxyhash.serve.workers.searcher
print(*{"fastapi", "pydantic", "uvicorn", "torch"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("is_daemon", [True, False])
def test_child_process_that_forgets_its_workers_ends(is_daemon: bool) -> None:
    body = f"""
    import multiprocessing

    def forget():
        say(start().pid)
        kept.append(start())
        say(kept[0].pid)

    kept = []
    child = multiprocessing.get_context("fork").Process(target=forget, daemon={is_daemon})
    child.start()
    child.join(60)
    say(child.exitcode)
    """
    with script(body) as process:
        pids = [int(words(process)[0]) for _ in range(2)]
        assert words(process) == ["0"]
        assert wait_until_ended(*pids)
        assert process.wait(60) == 0


def test_program_without_a_main_guard_starts_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"print('started', flush=True)\n{SCRIPT}\nsay(start().call(b'done', timeout=60).decode())\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["started", "done"]
