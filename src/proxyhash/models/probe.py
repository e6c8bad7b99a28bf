"""Probe of a model folder: outputs of the network on two fixed images, by which onnxruntime alone checks an ONNX file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from proxyhash.models.onnx_backend import Floats, OnnxBackend, is_onnxruntime_available
from proxyhash.models.storage import ONNX, PROBE, check_files, image_size, read_config
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format

FORMAT = "proxyhash.probe/1"
TOLERANCE = 1e-3  # relative to the largest output


def probe_pixels(size: int) -> Floats:
    """Return two images (2, 3, size, size): a gradient and a texture, from integers only, so that they are equal everywhere.

    >>> probe_pixels(4)[:, 0, 1].tolist()
    [[42.0, 85.0, 127.0, 170.0], [1.0, 18.0, 35.0, 52.0]]
    """
    channel, row, column = np.ogrid[:3, :size, :size]
    gradient = (255 * (row + column * (channel + 1)) // (max(1, size - 1) * (channel + 2))) % 256
    texture = (row * row + column * (17 + channel) * row + 31 * channel * column) % 256
    return np.stack([np.broadcast_to(each, (3, size, size)) for each in (gradient, texture)]).astype(np.float32)


def write_probe(path: Path, outputs: Floats) -> None:
    """Write the outputs (2, width) of a network on `probe_pixels`."""
    save_file({"outputs": np.ascontiguousarray(outputs)}, path, metadata={"format": FORMAT, REQUIRES: RELEASE})


def read_probe(path: Path) -> Floats:
    """Return the outputs that `write_probe` wrote."""
    try:
        with safe_open(path, framework="np") as handle:
            header = handle.metadata() or {}
            check_format(path, header.get("format"), (FORMAT,), header.get(REQUIRES))
            outputs: Floats = handle.get_tensor("outputs")
    except (SafetensorError, OSError, TypeError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}.") from error
    if outputs.dtype != np.float32 or outputs.ndim != 2 or len(outputs) != 2 or not np.isfinite(outputs).all():
        raise InputError(f"{path} is damaged: it does not hold the outputs of two images.")
    return outputs


def are_close(found: Floats, expected: Floats) -> bool:
    """Return whether outputs differ by rounding only.

    >>> are_close(np.ones((2, 4), np.float32), np.full((2, 4), 1.0001, np.float32))
    True
    """
    scale = max(1.0, float(np.abs(expected).max()))
    # A NaN is not close, so the comparison is for outputs that are.
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= TOLERANCE * scale)


def check_onnx(folder: Path, network: Callable[[Floats], Floats] | None = None) -> None:
    """Raise an `InputError` unless the files of a model are intact and its ONNX file gives the network's outputs.

    Parameters
    ----------
    folder
        The folder of a model; without an ONNX file, or without onnxruntime, nothing is run.
    network
        Runs the network, for models of earlier releases, which have no probe. Without it, their ONNX file is not compared.
    """
    config = read_config(folder)
    check_files(folder, config["sha256"])
    if (folder / ONNX).is_file() and is_onnxruntime_available():
        compare_onnx(folder, OnnxBackend(folder / ONNX), image_size(config, folder), network)


def compare_onnx(
    folder: Path,
    onnx: Callable[[Floats], Floats],
    size: int,
    network: Callable[[Floats], Floats] | None = None,
) -> None:
    """Raise an `InputError` unless an ONNX file gives the outputs of the probe or, without a probe, those of `network`."""
    pixels = probe_pixels(size)
    if (folder / PROBE).is_file():
        expected = read_probe(folder / PROBE)
    elif network is not None:
        expected = network(pixels)
    else:
        return
    try:
        found = np.asarray(onnx(pixels))
    except Exception as error:  # onnxruntime raises many types of errors for a graph that does not fit
        raise InputError(f"{folder / ONNX} cannot be run: {' '.join(str(error).split())[:200]}; {ADVICE}.") from error
    if not are_close(found, expected):
        raise InputError(f"{folder / ONNX} does not give the outputs of this model; {ADVICE}.")


ADVICE = f"delete {ONNX}, or save the model again"
