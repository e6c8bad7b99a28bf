"""`OnnxEncoder`: a saved model that encodes by onnxruntime, without torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proxyhash.data.transforms import Transform
from proxyhash.models.encoder import FeatureBackend, ModelEncoder
from proxyhash.models.onnx_backend import OnnxBackend, is_onnxruntime_available
from proxyhash.models.probe import compare_onnx, read_probe
from proxyhash.models.runtime import InferenceBackend
from proxyhash.models.storage import (
    CONFIG,
    ONNX,
    PROBE,
    check_files,
    read_class_names,
    read_config,
    read_metadata,
    read_transform,
    translate_errors,
)
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

# Heads whose codes are the signs of their outputs.
SIGN_HEADS = ("tanh", "tanh-bn", "linear", "linear-bn", "divided", "kernel", "unit-kernel")


@dataclass(frozen=True)
class OnnxEncoder(ModelEncoder):
    """The ONNX file of a saved model, with what it needs to encode.

    `OnnxEncoder.load("model")` gives the codes of `Hasher.load("model")`, which runs the same file on a CPU. It does not
    import torch, so it starts in a fraction of the time.

    Parameters
    ----------
    backend
        The network.
    code_length
        The number of bits, which is the width of the outputs.
    transform
        How images are prepared for the network.
    class_names
        The names of the classes or tags that it was trained with.
    metadata
        The training settings, the data, the protocol and the validation metrics.
    folder
        The folder that it was loaded from.
    """

    backend: InferenceBackend = field(repr=False)
    code_length: int
    transform: Transform
    class_names: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.code_length

    def _backend(self) -> InferenceBackend:
        return self.backend

    @property
    def has_features(self) -> bool:
        """Return whether the ONNX file gives the features q(x) too."""
        return isinstance(self.backend, OnnxBackend) and self.backend.has_features

    def _feature_backend(self) -> FeatureBackend:
        assert isinstance(self.backend, OnnxBackend)
        return self.backend.with_features

    @staticmethod
    def can_load(folder: Path) -> bool:
        """Return whether a model encodes without torch here: it has an ONNX file, a probe, and codes that are signs."""
        if not is_onnxruntime_available() or not (folder / ONNX).is_file() or not (folder / PROBE).is_file():
            return False
        head = read_config(folder).get("head")
        return isinstance(head, dict) and head.get("kind") in SIGN_HEADS

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder that `Hasher.save` wrote, if `can_load` says so.

        Raises
        ------
        InputError
            If a file is damaged, or if the ONNX file does not give the outputs of the probe.
        """
        config = read_config(folder)
        check_files(folder, config.get("sha256"))
        with translate_errors(folder):
            transform, bits = read_transform(config, folder), check_int("The number of bits", config["head"]["bits"], 1)
            names, metadata = read_class_names(config, folder), read_metadata(config, folder)
        if read_probe(folder / PROBE).shape[1] != bits:
            raise InputError(f"{folder / CONFIG} does not describe the network in {ONNX}: it has another number of bits.")
        backend = OnnxBackend(folder / ONNX)
        compare_onnx(folder, backend, transform.size)
        return cls(backend, bits, transform, names, metadata, folder)
