"""TensorBoard output."""

from collections.abc import Callable
from pathlib import Path

from proxyhash.utils.errors import InputError


def tensorboard_writer(folder: Path) -> Callable[[dict[str, float]], None]:
    """Return a function that writes the metrics of an epoch to `folder` and flushes."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs TensorBoard: pip install 'proxyhash[tensorboard]'.") from None
    try:
        writer = SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(f"Cannot write {folder}: {error.strerror}.") from error

    def write(metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(metrics["epoch"]))
        writer.flush()

    return write
