"""Ctrl-C between two steps: weights in the middle of one are of no use to anybody."""

import signal
import threading
from types import FrameType
from typing import Self


class InterruptHandler:
    """While it is active, the first Ctrl-C is remembered; the second acts as usual."""

    def __init__(self) -> None:
        self.is_requested = False
        self._previous_handler = signal.getsignal(signal.SIGINT)
        self._is_main_thread = threading.current_thread() is threading.main_thread()  # only there can a signal be caught

    def __enter__(self) -> Self:
        """Begin to remember."""
        if self._is_main_thread:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Let Ctrl-C act as usual."""
        if self._is_main_thread:
            signal.signal(signal.SIGINT, self._previous_handler)

    def raise_if_requested(self, message: str) -> None:
        """Raise what Ctrl-C would have raised."""
        if self.is_requested:
            raise KeyboardInterrupt(message)

    def _handle(self, _: int, __: FrameType | None) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, self._previous_handler)
