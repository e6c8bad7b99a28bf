"""Device that networks run on."""

import platform
import re
import sys
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import get_process_rank

AUTO = "auto"
DEVICE_NAMES = "auto, cpu, cuda, cuda:1 or mps"
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, and WSL; containers have them too

if TYPE_CHECKING:
    import torch
    from torch import nn


def find_device(name: str | None = None) -> str:
    """Return the device of a name, as torch writes it. This is the only place that chooses a device.

    Parameters
    ----------
    name
        auto, cpu, cuda, cuda:N or mps; None: auto, which is a GPU if there is one (cuda, then mps), else the CPU. Processes
        that torchrun started get a GPU of their own each.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If there is no such name, or no such device on this machine.

    Examples
    --------
    >>> find_device("cpu")
    'cpu'
    >>> find_device("gpu")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: There is no device gpu; choose auto, cpu, cuda, cuda:1 or mps.
    """
    name = check_device_name(AUTO if name is None else name)
    if name == "cpu" or (name == AUTO and not can_have_gpu()):
        return "cpu"
    import torch

    rank = get_process_rank()
    if name == AUTO:
        has_mps = torch.backends.mps.is_available() and rank.world == 1  # processes cannot exchange tensors on mps
        name = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    if name == "cuda" and rank.world > 1:
        name = f"cuda:{rank.local % max(1, torch.cuda.device_count())}"
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


def check_device_name(name: str) -> str:
    """Return the name of a device, which may not exist on this machine; another text is an `InputError`.

    >>> check_device_name("cuda:1")
    'cuda:1'
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?|mps", name):
        raise InputError(f"There is no device {name}; choose {DEVICE_NAMES}.")
    return name


def can_have_gpu() -> bool:
    """Return whether this machine may have a GPU for torch. It does not import torch, which takes seconds.

    False is certain: torch is not installed, was built for CPUs only, or there is no driver.
    """
    try:
        if metadata.version("torch").endswith("+cpu"):
            return False
    except metadata.PackageNotFoundError:
        return False
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return sys.platform != "linux" or any(Path(path).exists() for path in _GPU_DRIVERS)
