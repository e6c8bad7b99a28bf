"""Precision of the forward pass: mixed precision by torch's autocast, with weights and losses in float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

from proxyhash.utils.errors import InputError

Precision = Literal["float32", "bfloat16", "float16"]


def check_precision(name: str | None) -> None:
    """Raise an `InputError` unless a precision is known, or None for the default of the device."""
    if name is not None and name not in get_args(Precision):
        raise InputError(f"There is no precision {name}; choose {', '.join(get_args(Precision))}.")


def training_precision(device: torch.device, name: Precision | None = None) -> Precision:
    """Return the precision of training on a device.

    Parameters
    ----------
    device
        The device.
    name
        A precision; None: bfloat16 on a CUDA GPU that supports it, float16 on an older one, and float32 elsewhere.

    Examples
    --------
    >>> training_precision(torch.device("cpu"))
    'float32'
    """
    check_precision(name)
    if name is not None:
        return name
    if device.type != "cuda":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context in which products and convolutions are computed in a precision; none for float32.

    >>> with autocast(torch.device("cpu"), "bfloat16"):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.bfloat16
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision))


def move_batch(batch: Tensor, device: torch.device) -> Tensor:
    """Return a batch on a device; for CUDA by pinned memory, so that the copy overlaps with the computation.

    >>> move_batch(torch.ones(2), torch.device("cpu"))
    tensor([1., 1.])
    """
    if device.type == "cuda":
        return batch.pin_memory().to(device, non_blocking=True)
    return batch.to(device)
