"""Inference with onnxruntime on a CPU; this module does not need torch."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads

Floats = NDArray[np.float32]


class OnnxBackend:
    """Run an exported network with onnxruntime.

    Raises
    ------
    InputError
        For a file that onnxruntime cannot run, or that refers to other files, whose content no checksum covers.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or available_threads()
        # Threads that spin while they wait would take the cores from those that decode images.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        _check_self_contained(path)
        try:
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has many types of errors, which share no other base
            raise _not_runnable(path, error) from error

    def __call__(self, pixels: Floats) -> Floats:
        """Run the network."""
        outputs: Floats = self.session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]
        return outputs


def is_onnx_available() -> bool:
    """Return whether networks can be exported and run by onnxruntime here."""
    return find_spec("onnxruntime") is not None and find_spec("onnxscript") is not None


def _check_self_contained(path: Path) -> None:
    """Raise if a tensor of the graph, or of a graph inside it, lies in another file."""
    import onnx  # a dependency of onnxscript

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's errors share no other base
        raise _not_runnable(path, error) from error
    if any(tensor.data_location or tensor.external_data for tensor in _tensors(model)):
        raise InputError(f"{path} refers to another file, which is not allowed; save the model again.")


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors of a protobuf message; protobuf itself limits the depth of messages."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in (value,) if hasattr(value, "ListFields") else value:  # one message, or several
            if field.message_type.name == "TensorProto":
                yield each
            else:
                yield from _tensors(each)


def _not_runnable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is not a network that onnxruntime can run: {' '.join(str(error).split())[:200]}.")
