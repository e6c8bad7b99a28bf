"""Export of networks to ONNX files."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from proxyhash.models.device import module_device
from proxyhash.models.onnx_backend import Floats, OnnxBackend
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

TOLERANCE = 1e-3  # relative to the largest output
CLEARLY_SIGNED = 1e-4  # outputs nearer to zero may round to either sign


def export_onnx(network: nn.Module, path: Path, image_size: int, *, outputs: Sequence[str] = ("nu",)) -> None:
    """Write `network` (pixels (n, 3, size, size) from 0 to 255 -> outputs) for any n, once both give the same answers.

    `outputs` names what the network returns: one tensor, or a tuple of several.
    """
    _export(network, path, "pixels", _sample_images(image_size), outputs)


def export_vector_onnx(network: nn.Module, path: Path, width: int) -> None:
    """Write `network` (vectors (n, width) -> nu) for any n, once both give the same answers."""
    sample = np.random.default_rng(0).normal(size=(12, width)).astype(np.float32)
    _export(network, path, "vectors", sample, ("nu",))


def _export(network: nn.Module, path: Path, name: str, sample: Floats, outputs: Sequence[str]) -> None:
    """Write a network whose input has a name; the file must give the network's outputs for a sample of inputs."""
    _check_installed()
    with atomic_write(path) as temporary:
        _write(network.eval(), temporary, name, sample.shape[1:], outputs)
        _compare(network, temporary, sample)


def _write(network: nn.Module, path: Path, name: str, shape: tuple[int, ...], outputs: Sequence[str]) -> None:
    example = torch.zeros(2, *shape, device=module_device(network))
    with torch.inference_mode():
        network(example)  # a network that cannot run says so itself; the exporter would wrap its error
    with _quiet():
        try:
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[name],
                output_names=list(outputs),
                dynamic_shapes=({0: torch.export.Dim("n")},),
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise InputError("This network cannot be written as ONNX: it has a part that torch does not export.") from error
        assert program is not None
        program.save(path)
    _remove_metadata(path)


def _remove_metadata(path: Path) -> None:
    """Remove the stack traces that torch adds to every node: they hold paths of this machine."""
    import onnx

    model = onnx.load(path)
    messages: list[Any] = [model]
    while messages:
        message = messages.pop()
        if "metadata_props" in message.DESCRIPTOR.fields_by_name:
            message.ClearField("metadata_props")
        for field, value in message.ListFields():
            if field.message_type is not None and field.message_type.name != "TensorProto":
                messages += [value] if hasattr(value, "ListFields") else list(value)
    path.write_bytes(model.SerializeToString())


def _compare(network: nn.Module, path: Path, sample: Floats) -> None:
    """Raise unless the file gives torch's outputs on a sample of inputs; the first output also needs the same signs."""
    with torch.inference_mode():
        answer = network(torch.from_numpy(sample).to(module_device(network)))
    ours = [each.float().cpu().numpy() for each in (answer if isinstance(answer, tuple) else (answer,))]
    theirs = OnnxBackend(path).run_all(sample)
    flipped = ((ours[0] >= 0) != (theirs[0] >= 0)) & (np.abs(ours[0]) > CLEARLY_SIGNED)
    if flipped.any() or not all(_are_near(*pair) for pair in zip(ours, theirs, strict=True)):
        raise InputError("The ONNX file does not give the network's own answers, so it was not written.")


def _are_near(ours: Floats, theirs: Floats) -> bool:
    scale = max(1.0, float(np.abs(ours).max()))
    return float(np.abs(ours - theirs).max()) <= TOLERANCE * scale


def _sample_images(image_size: int) -> Floats:
    """Return smooth, coarse and noisy images (n, 3, size, size)."""
    random = np.random.default_rng(0)
    pictures = []
    for detail in (2, 4, 8, 16, 32, image_size):
        coarse = torch.from_numpy(random.uniform(0, 255, (2, 3, detail, detail)).astype(np.float32))
        pictures.append(nn.functional.interpolate(coarse, size=(image_size, image_size), mode="bilinear"))
    return torch.cat(pictures).numpy()


def _check_installed() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("Exporting needs onnxruntime and onnxscript: pip install 'proxyhash[onnx]'.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
