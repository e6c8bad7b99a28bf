"""Commands in a terminal."""

import os
import pty
import subprocess
from collections.abc import Sequence


def terminal_output(command: Sequence[str], **environment: str) -> bytes:
    """Return what a command writes to a terminal, with color."""
    reader, writer = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    with subprocess.Popen(command, stdout=writer, stderr=writer, env={**variables, **environment}) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                shown += os.read(reader, 4096)
            except OSError:  # the other end is closed
                break
        process.wait()
    os.close(reader)
    return shown
