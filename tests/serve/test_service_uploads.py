"""Uploads as strangers send them: each gets an answer or a sentence, and the service stays up."""

import asyncio
import io
import os
import signal
import struct
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image

from helpers.service import Service
from proxyhash.data.crop import CropBox
from proxyhash.serve.decoder import Crop, Job, Square, Thumbnail
from proxyhash.serve.decoding import Decoders
from proxyhash.serve.http import RefusalError
from proxyhash.serve.settings import Limits

PIXELS = np.random.default_rng(5).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def encoded(kind: str, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, kind, **options)
    return file.getvalue()


def animated() -> bytes:
    frames = [Image.fromarray(np.roll(PIXELS, step, 1)) for step in range(5)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


def claims_to_be(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header promises many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress(bytes(100_000_000), 1) if width * height < 200_000_000 else zlib.compress(b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def upload(running: Service, content: bytes, kind: str = "application/octet-stream") -> httpx.Response:
    with running.client() as client:
        return client.post("/api/search/image", content=content, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    "content",
    [encoded("JPEG"), encoded("JPEG", "CMYK"), encoded("PNG", "LA"), encoded("WEBP"), encoded("TIFF", "1"), animated()],
    ids=["jpeg", "cmyk", "gray with alpha", "webp", "one bit", "animated"],
)
def test_images_of_every_kind_are_searched_with(photo_service: Service, content: bytes) -> None:
    response = upload(photo_service, content)
    assert response.status_code == 200
    assert len(response.json()["matches"]) == 10


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (b"", 422, "The image is empty"),
        (encoded("JPEG")[:400], 422, "The image cannot be decoded as an image"),
        (encoded("PNG")[:-200], 422, "The image cannot be decoded as an image"),
        (b"<html><script>alert(1)</script>", 422, "its format is not recognized"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "its format is not recognized"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "its format is not recognized"),
        (claims_to_be(60_000, 60_000), 422, "has more than 50,000,000 pixels, which is refused"),
        (claims_to_be(8_000, 8_000), 422, "has more than 50,000,000 pixels, which is refused"),
        (bytes(2_000_001), 413, "A request may have at most 2,000,000 bytes."),
        (bytes(50_000_000), 413, "A request may have at most 2,000,000 bytes."),
    ],
    ids=["zero bytes", "truncated jpeg", "truncated png", "html", "postscript", "svg", "bomb", "real bomb", "large", "huge"],
)
def test_what_is_no_image_is_refused_in_a_sentence(
    photo_service: Service, content: bytes, status: int, sentence: str
) -> None:
    response = upload(photo_service, content, "image/jpeg")
    assert response.status_code == status
    assert sentence in response.json()["error"]
    assert upload(photo_service, encoded("PNG")).status_code == 200


def test_a_body_without_a_length_is_cut_off_too(photo_service: Service) -> None:
    response = upload(photo_service, (bytes(100_000) for _ in range(40)))  # type: ignore[arg-type]  # sent in chunks
    assert response.status_code == 413


@pytest.fixture(scope="module")
def small_decoders() -> "object":
    decoders = Decoders(Limits(decoders=1, decoder_seconds=5.0, decoder_bytes=60_000_000))
    decoders.start()
    yield decoders
    decoders.close()


def do(decoders: Decoders, job: Job, content: bytes) -> np.ndarray:
    return asyncio.run(decoders.do(job, content))


def test_jobs_give_what_decoding_in_this_process_gives(small_decoders: Decoders) -> None:
    expected = np.asarray(Image.fromarray(PIXELS).resize((16, 16), Image.Resampling.BILINEAR, box=(10, 0, 50, 40)))
    assert np.array_equal(do(small_decoders, Square(16, "cover"), encoded("PNG")), expected)
    whole = do(small_decoders, Crop(40, CropBox(0, 0, 1, 1, flipped=False)), encoded("PNG"))
    assert np.allclose(whole, PIXELS[:, 10:50], atol=1e-3)
    with Image.open(io.BytesIO(do(small_decoders, Thumbnail(30), encoded("PNG")).tobytes())) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (30, 20))


def test_a_decoder_that_takes_too_long_or_dies_is_replaced(small_decoders: Decoders) -> None:
    job, replaced = Square(16, "cover"), small_decoders.replaced
    for number, sentence in (
        (signal.SIGSTOP, "takes longer than 5 seconds to decode"),
        (signal.SIGKILL, "made the decoder fail"),
    ):
        os.kill(_only(small_decoders), number)
        with pytest.raises(RefusalError, match=sentence):
            do(small_decoders, job, encoded("PNG"))
        assert do(small_decoders, job, encoded("PNG")).shape == (16, 16, 3)
    assert small_decoders.replaced == replaced + 2


def test_a_decoder_has_so_much_memory_and_no_more(small_decoders: Decoders) -> None:
    large = io.BytesIO()
    Image.new("RGB", (7000, 7000)).save(large, "PNG")
    with pytest.raises(RefusalError, match="The image takes too much memory to decode"):
        do(small_decoders, Square(16, "cover"), large.getvalue())
    assert do(small_decoders, Square(16, "cover"), encoded("PNG")).shape == (16, 16, 3)


def _only(decoders: Decoders) -> int:
    """Return the number of the one decoder process."""
    (process,) = decoders._all
    return int(process._process.pid)
