"""Temporary modes of networks."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Set the training or evaluation mode, and restore the mode of each submodule afterwards."""
    modes = [(each, each.training) for each in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode
