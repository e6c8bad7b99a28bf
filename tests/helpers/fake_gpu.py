"""A GPU that does not exist: tensors that say they are on cuda:0, and may not meet tensors of the CPU.

Their numbers are in the memory of the CPU, so that everything is computed. `FakeGpu` refuses what a real GPU refuses, an
operation on tensors of both devices, and records what costs time on one: copies to the CPU, and memory that is not pinned.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("cuda", 0)
_HOST_COPIES = {"cpu", "numpy", "item", "tolist", "__bool__", "__float__", "__int__", "__index__"}
_MOVES = {"copy_", "to", "_has_compatible_shallow_copy_type"}  # between devices by their nature
_ATTRIBUTES = {"__get__", "__set__", "size", "dim", "stride", "numel", "__len__", "requires_grad_", "is_floating_point"}


class GpuTensor(Tensor):
    """A tensor on the fake GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = self.detach().clone().as_subclass(GpuTensor).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        memo[id(self)] = copied
        return copied


class MixedDevicesError(RuntimeError):
    """An operation on tensors of both devices."""


class FakeGpu(TorchFunctionMode):
    """Context in which cuda:0 exists.

    `copies` lists the names of functions that copied numbers to the CPU; `pinned` counts copies from pinned memory, and
    `unpinned` the others of more than one number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []
        self.pinned = self.unpinned = 0
        self._pinned_tensors: list[Tensor] = []

    def __enter__(self) -> Self:
        self._swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)  # a parameter's type is that of its new data
        self._autocast, self._scaler = torch.autocast, torch.amp.GradScaler
        torch.autocast = lambda _, **options: self._autocast("cpu", **options)  # type: ignore[misc, assignment]
        torch.amp.GradScaler = lambda _: self._scaler("cpu")  # type: ignore[misc, assignment]
        self._group = torch._C._group_tensors_by_device_and_dtype
        torch._C._group_tensors_by_device_and_dtype = self._group_tensors  # type: ignore[assignment]
        return super().__enter__()  # type: ignore[no-untyped-call, no-any-return]

    def __exit__(self, *error: Any) -> None:
        torch.__future__.set_swap_module_params_on_conversion(self._swaps)
        torch.autocast, torch.amp.GradScaler = self._autocast, self._scaler  # type: ignore[misc]
        torch._C._group_tensors_by_device_and_dtype = self._group
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _group_tensors(self, lists: list[list[Any]], *options: Any) -> dict[Any, Any]:
        """Group tensors by device, which torch does below the level of Python."""
        groups = self._group(lists, *options)
        return {
            (DEVICE if isinstance(lists[0][0], GpuTensor) else device, dtype): group
            for (device, dtype), group in groups.items()
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        on_gpu = any(isinstance(tensor, GpuTensor) for tensor in tensors)
        if name == "pin_memory":
            self._pinned_tensors.append(args[0])
            return args[0]
        if name in ("_parse_to", "device"):  # `Module.to` reads its arguments by the first; neither computes
            return func(*args, **kwargs)
        target = _target(args, kwargs)
        if on_gpu and (name in _HOST_COPIES or (name == "to" and target == "cpu")):
            self.copies.append(name)
        elif on_gpu and name not in _ATTRIBUTES | _MOVES:
            _check_devices(name, tensors)
        if name == "to" and target == "cuda" and not on_gpu:
            self._count_move(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*_on_cpu(args), **_on_cpu(kwargs))
        stays = name not in _HOST_COPIES and target != "cpu"
        return tree_map(_to_gpu, result) if (on_gpu and stays) or target == "cuda" else _plain(result)

    def _count_move(self, tensor: Tensor) -> None:
        if any(tensor is pinned for pinned in self._pinned_tensors):
            self.pinned += 1
        elif tensor.numel() > 1:
            self.unpinned += 1


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the type of the device that is given to a function."""
    given = [value for value in (*args, kwargs.get("device")) if isinstance(value, (torch.device, str))]
    names = {str(value).split(":")[0] for value in given} & {"cpu", "cuda"}
    return names.pop() if names else None


def _on_cpu(values: Any) -> Any:
    return tree_map(lambda value: torch.device("cpu") if _is_gpu_name(value) else value, values)


def _is_gpu_name(value: Any) -> bool:
    return isinstance(value, (torch.device, str)) and str(value).split(":")[0] == "cuda"


def _to_gpu(value: Any) -> Any:
    return value.as_subclass(GpuTensor) if isinstance(value, Tensor) and not isinstance(value, GpuTensor) else value


def _plain(result: Any) -> Any:
    return tree_map(lambda value: value.as_subclass(Tensor) if isinstance(value, GpuTensor) else value, result)


def _check_devices(name: str, tensors: list[Tensor]) -> None:
    """Raise for a tensor of the CPU, unless it is one number, as torch allows."""
    for tensor in tensors:
        if not isinstance(tensor, GpuTensor) and tensor.ndim:
            raise MixedDevicesError(f"{name} got tensors on cuda:0 and on the CPU, of shape {tuple(tensor.shape)}.")
