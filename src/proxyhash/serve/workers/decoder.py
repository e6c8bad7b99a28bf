"""Decoder process: image files of clients and folders to pixels.

It takes limited memory, and is killed if it takes too long. Its replies are read as plain numbers, so an image that exploits
a decoder controls nothing but the decoder.
"""

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.data.crop import CropBox
from proxyhash.data.decoding import UnreadableImageError, decode_image
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.serve.workers.channel import Channel
from proxyhash.serve.workers.process import report_ready
from proxyhash.utils.jit import cold_start

NAME = "The image"
_OUT_OF_MEMORY = f"{NAME} takes too much memory to decode."
_JPEG_QUALITY = 85


class PixelJob(msgspec.Struct, frozen=True, tag=True):
    """Make the pixels (side, side, 3) that a model takes."""

    spec: PixelSpec

    @property
    def side(self) -> int:
        """Return height and width of the pixels."""
        return self.spec.side


class ThumbnailJob(msgspec.Struct, frozen=True, tag=True):
    """Make a JPEG file that fits a square: its bytes (n,) as uint8."""

    side: int


Job = PixelJob | ThumbnailJob


class DecodeRequest(msgspec.Struct, frozen=True, array_like=True):
    """An image file, and the job to do with it."""

    job: Job
    data: memoryview


class DecodeReply(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of the array that a job makes, or the sentence why there is none."""

    data: memoryview
    error: str = ""


def decode(job: Job, data: bytes | memoryview, max_pixels: int) -> NDArray[Any]:
    """Return the array that a job makes of an image file; InputError if it cannot be decoded."""
    if isinstance(job, PixelJob):
        return job.spec.decode(io.BytesIO(data), name=NAME, max_pixels=max_pixels)
    return _thumbnail(decode_image(io.BytesIO(data), job.side, name=NAME, max_pixels=max_pixels), job.side)


def read_array(job: Job, data: memoryview) -> NDArray[Any]:
    """Return the array of a reply; ValueError if the bytes are not those of such a job."""
    if isinstance(job, ThumbnailJob):
        return np.frombuffer(data, np.uint8)
    return np.frombuffer(data, job.spec.dtype).reshape(job.spec.shape)


def compile_kernels() -> None:
    """Compile what jobs need, or load it from the cache."""
    cold_start.end()
    file = _encode(Image.new("RGB", (16, 16)), "PNG")
    decode(PixelJob(PixelSpec(8, box=CropBox(0, 0, 1, 1, flipped=False))), file, max_pixels=256)


def run_decoder(channel: Channel, max_bytes: int, max_pixels: int) -> None:
    """Decode images until the service ends."""
    compile_kernels()
    _limit_memory(max_bytes)
    report_ready(channel)
    requests = msgspec.msgpack.Decoder(DecodeRequest)
    while True:
        reply = _reply(requests.decode(channel.receive()), max_pixels)
        channel.send(msgspec.msgpack.encode(reply))


def _reply(request: DecodeRequest, max_pixels: int) -> DecodeReply:
    nothing = memoryview(b"")
    try:
        array = decode(request.job, request.data, max_pixels)
    except UnreadableImageError as error:
        return DecodeReply(nothing, _OUT_OF_MEMORY if isinstance(error.__cause__, MemoryError) else str(error))
    except MemoryError:
        return DecodeReply(nothing, _OUT_OF_MEMORY)
    return DecodeReply(memoryview(array.tobytes()))


def _limit_memory(additional_bytes: int) -> None:
    """Limit the memory that this process may take from now on, where the system supports it."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + additional_bytes,) * 2)
    except (ImportError, OSError, ValueError):
        return


def _thumbnail(image: Image.Image, side: int) -> NDArray[np.uint8]:
    """Return the bytes of a JPEG file; an image that is smaller than the square keeps its size."""
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return np.frombuffer(_encode(image, "JPEG", quality=_JPEG_QUALITY), np.uint8)


def _encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
