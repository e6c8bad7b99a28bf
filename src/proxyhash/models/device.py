"""Device that networks run on."""

from itertools import chain
from typing import TYPE_CHECKING

from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


def find_device(name: str | None = None, local_rank: int | None = None) -> str:
    """Return the device of a name, or a GPU if there is one, else the CPU.

    Parameters
    ----------
    name
        cpu, cuda or cuda:N; None for the default.
    local_rank
        Rank of this process on its machine; each process gets a GPU of its own.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If this machine has no such device.

    Examples
    --------
    >>> find_device("cpu")
    'cpu'
    """
    import torch

    if name is None and not torch.cuda.is_available():
        return "cpu"
    if name is None:
        return "cuda" if local_rank is None else f"cuda:{local_rank % torch.cuda.device_count()}"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError):
        raise InputError(f"There is no device {name} here; try cpu.") from None
    return name


def module_device(module: "nn.Module") -> "torch.device":
    """Return the device of a network's parameters or buffers; one without any is on the CPU.

    Examples
    --------
    >>> from torch import nn
    >>> module_device(nn.Flatten())
    device(type='cpu')
    """
    import torch

    for tensor in chain(module.parameters(), module.buffers()):
        return tensor.device
    return torch.device("cpu")
