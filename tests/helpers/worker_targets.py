"""Targets of worker processes in tests, and what the system says about processes."""

import os
import time
from pathlib import Path

from proxyhash.serve.workers.channel import Channel, Failure
from proxyhash.serve.workers.process import report_ready


def echo(channel: Channel) -> None:
    """Send each message back; `exit`, `sleep` and `size N` are commands."""
    report_ready(channel)
    while True:
        message = bytes(channel.receive())
        if message == b"exit":
            os._exit(3)
        if message == b"sleep":
            time.sleep(1)
        if message == b"hang":
            time.sleep(3600)
        if message.startswith(b"size "):
            message = bytes(int(message.split()[1]))
        channel.send(message)


def fail_to_start(channel: Channel) -> None:
    report_ready(channel, Failure("damaged", "The index is damaged."))


def exit_at_once(channel: Channel) -> None:
    channel.close()


def report_main_module(channel: Channel) -> None:
    """Answer each message with the file of the main module, empty if it was not imported."""
    import sys

    report_ready(channel)
    while True:
        channel.receive()
        main = sys.modules.get("__mp_main__", sys.modules["__main__"])
        channel.send(str(getattr(main, "__file__", "")).encode())


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that ended and waits for its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until_ended(*pids: int, seconds: float = 30.0) -> bool:
    """Return whether processes end within a time."""
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
