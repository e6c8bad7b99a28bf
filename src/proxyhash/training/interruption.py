"""Ctrl-C between two steps: weights in the middle of one are of no use to anybody."""

import signal
import threading
from types import FrameType
from typing import Self


class Interruption:
    """While it is active, the first Ctrl-C is remembered; the second acts as usual."""

    def __init__(self) -> None:
        self.asked = False
        self._usual = signal.getsignal(signal.SIGINT)
        self._listens = threading.current_thread() is threading.main_thread()  # only there can a signal be caught

    def __enter__(self) -> Self:
        """Begin to remember."""
        if self._listens:
            signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        """Let Ctrl-C act as usual."""
        if self._listens:
            signal.signal(signal.SIGINT, self._usual)

    def check(self, message: str) -> None:
        """Raise what Ctrl-C would have raised."""
        if self.asked:
            raise KeyboardInterrupt(message)

    def _remember(self, _: int, __: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._usual)
