"""Inference with onnxruntime on a CPU; this module does not need torch."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, over_slices

SLICE = 8  # images that a thread copies at once

Floats = NDArray[np.float32]
FEATURES = "features"  # name of the second output of a model's file


class Outputs(NamedTuple):
    """Outputs of one pass for n images: `embeddings` nu (n, bits) and `features` q(x) (n, num_features)."""

    embeddings: Floats
    features: Floats


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
        # The format is not guessed from the content: the other one would not be checked for references to files.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        content = _read(path)
        _check_self_contained(path, content)
        try:
            self.session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has many types of errors, which share no other base
            raise _not_runnable(path, error) from error
        self.input_name: str = self.session.get_inputs()[0].name
        self.output_names: list[str] = [output.name for output in self.session.get_outputs()]

    def __call__(self, pixels: Floats) -> Floats:
        """Return the first output, which is nu for the network of a model."""
        return self._run(self.output_names[:1], pixels)[0]

    @property
    def has_features(self) -> bool:
        """Return whether the features q(x) are the second output: earlier releases wrote files without them."""
        return self.output_names[1:] == [FEATURES]

    def with_features(self, pixels: Floats) -> Outputs:
        """Return nu and the features of one pass, if `has_features` says so."""
        return Outputs(*self.run_all(pixels))

    def run_all(self, pixels: Floats) -> list[Floats]:
        """Return all outputs of the network."""
        return self._run(self.output_names, pixels)

    def _run(self, names: Sequence[str], pixels: Floats) -> list[Floats]:
        outputs: list[Floats] = self.session.run(names, {self.input_name: _contiguous(pixels)})
        return outputs


def _contiguous(inputs: Floats) -> Floats:
    """Return inputs as onnxruntime takes them; the channels of images are first then, and last as the loader has them."""
    if inputs.flags.c_contiguous:
        return inputs
    copy = np.empty(inputs.shape, inputs.dtype)
    over_slices(len(inputs), SLICE, lambda part: np.copyto(copy[part], inputs[part]))
    return copy


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error


def is_onnxruntime_available() -> bool:
    """Return whether exported networks can be run here."""
    return find_spec("onnxruntime") is not None


def is_onnx_available() -> bool:
    """Return whether networks can be exported and run here."""
    return is_onnxruntime_available() and find_spec("onnxscript") is not None


def _check_self_contained(path: Path, content: bytes) -> None:
    """Raise if a tensor of the graph, or of a graph inside it, lies in another file.

    Such a tensor has an entry with the key "location", and protobuf stores a text as it is. A file without these bytes
    refers to no other file, which spares most files the import of onnx and a second parse.
    """
    if b"location" not in content:
        return
    try:
        import onnx
    except ImportError:
        raise InputError(f"Checking {path} needs onnx; run pip install onnx, or save the model again.") from None
    try:
        model = onnx.load_model_from_string(content)
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
