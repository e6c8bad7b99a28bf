"""Progress callbacks of long computations."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with the name of the work and the fraction that is done, from 0 to 1.

Details that change may follow the name after a colon: "training: loss 0.412, 950 images/s".
"""


def no_progress(work: str, fraction: float) -> None:
    """Do nothing: the default `progress` of every function."""
