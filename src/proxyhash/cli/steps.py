"""Commands that run other commands, step by step."""

import io
import json
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any


def run_command(command: Sequence[str]) -> Any:
    """Run a command as if it had been typed; what it would print, it answers."""
    from proxyhash.cli.app import app

    printed = io.StringIO()
    with redirect_stdout(printed):
        app([*command, "--json"], exit_on_error=False, print_error=False, result_action="return_value")
    return json.loads(printed.getvalue())


class Stopwatch:
    """Tells the time since it was asked last."""

    def __init__(self) -> None:
        self.since = time.monotonic()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        before, self.since = self.since, time.monotonic()
        return self.since - before
