"""How a long computation tells its caller where it is, without knowing who listens."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with the name of the work and the fraction of it that is done, from 0 to 1.

What changes while the work goes on may follow the name after a colon: "training: loss 0.412, 950 images/s".
"""


def silent(work: str, fraction: float) -> None:
    """Listen to nothing: the default of every function that takes a `progress`."""
