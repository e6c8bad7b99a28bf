"""What a decoder process does: bytes that a stranger sent, or that lie in a file, become pixels.

It holds nothing but what it is given, may take so much memory and no more, and is killed if it takes too long. What it sends
back is read as plain numbers, never as Python objects: bytes that subvert a decoder gain nothing but the decoder.
"""

import io
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from proxyhash.data.crop import CropBox, sample_crop
from proxyhash.data.decoding import Fit, UnreadableImageError, decode_image, resize_square
from proxyhash.serve.processes import Ready

NAME = "The image"


class Square(msgspec.Struct, frozen=True, tag=True):
    """Bring an image to (side, side, 3) bytes."""

    side: int
    fit: Fit


class Crop(msgspec.Struct, frozen=True, tag=True):
    """Cut a part of an image, (side, side, 3) floats."""

    side: int
    part: CropBox


class Thumbnail(msgspec.Struct, frozen=True, tag=True):
    """Make a JPEG that fits a square."""

    side: int


Job = Square | Crop | Thumbnail


class DecodeReply(msgspec.Struct, frozen=True):
    """What became of a job: an error, or an array whose bytes follow."""

    error: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"


def work(connection: Connection, memory: int, pixels: int) -> None:
    """Do jobs until the service is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone; the service lets us finish
    do(Crop(8, CropBox(0, 0, 1, 1, flipped=False)), _example(), pixels)  # compiles what it needs
    limit_memory(memory)
    connection.send_bytes(msgspec.json.encode(Ready()))
    with suppress(EOFError, OSError):
        while True:
            job = msgspec.json.decode(connection.recv_bytes(), type=Job)
            reply, array = _done(job, connection.recv_bytes(), pixels)
            connection.send_bytes(msgspec.json.encode(reply))
            connection.send_bytes(array)


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more, where the system can do that."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))
    except (ImportError, OSError, ValueError):
        return


def do(job: Job, data: bytes, pixels: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return what a job asks for; what cannot be decoded is an error."""
    image = decode_image(
        io.BytesIO(data), job.side if isinstance(job, Thumbnail) else _needed(job), name=NAME, max_pixels=pixels
    )
    if isinstance(job, Square):
        return resize_square(image, job.side, job.fit)
    if isinstance(job, Crop):
        out = np.empty((job.side, job.side, 3), np.float32)
        sample_crop(image, job.part, out)
        return out
    return _thumbnail(image, job.side)


def _done(job: Job, data: bytes, pixels: int) -> tuple[DecodeReply, bytes]:
    try:
        array = do(job, data, pixels)
    except UnreadableImageError as error:
        without_memory = isinstance(error.__cause__, MemoryError)
        return DecodeReply(f"{NAME} takes too much memory to decode." if without_memory else str(error)), b""
    except MemoryError:
        return DecodeReply(f"{NAME} takes too much memory to decode."), b""
    return DecodeReply("", array.shape, str(array.dtype)), array.tobytes()


def _needed(job: Square | Crop) -> int:
    return job.part.min_side(job.side) if isinstance(job, Crop) else job.side


def _thumbnail(image: Image.Image, side: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return the bytes of a JPEG; what is smaller than the square stays as small as it is."""
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return np.frombuffer(file.getvalue(), np.uint8)


def _example() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "PNG")
    return file.getvalue()
