"""Uploaded images, raw and as forms: each gets a result or one sentence, and the service stays up."""

import io
import struct
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image

from helpers.service import RunningService

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


def png_with_header(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header promises many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress(bytes(100_000_000), 1) if width * height < 200_000_000 else zlib.compress(b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def upload(running: RunningService, content: bytes, kind: str = "application/octet-stream") -> httpx.Response:
    with running.client() as client:
        return client.post("/api/v1/search", content=content, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    "content",
    [encoded("JPEG"), encoded("JPEG", "CMYK"), encoded("PNG", "LA"), encoded("WEBP"), encoded("TIFF", "1"), animated()],
    ids=["jpeg", "cmyk", "gray with alpha", "webp", "one bit", "animated"],
)
def test_images_of_every_format_are_searched(photo_service: RunningService, content: bytes) -> None:
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
        (png_with_header(60_000, 60_000), 422, "has more than 50,000,000 pixels, which is refused"),
        (png_with_header(8_000, 8_000), 422, "has more than 50,000,000 pixels, which is refused"),
        (bytes(2_000_001), 413, "The body may have at most 2,000,000 bytes."),
        (bytes(50_000_000), 413, "The body may have at most 2,000,000 bytes."),
    ],
    ids=["zero bytes", "truncated jpeg", "truncated png", "html", "postscript", "svg", "bomb", "real bomb", "large", "huge"],
)
def test_bad_images_get_one_sentence(photo_service: RunningService, content: bytes, status: int, sentence: str) -> None:
    response = upload(photo_service, content, "image/jpeg")
    assert response.status_code == status
    assert sentence in response.json()["detail"]
    assert upload(photo_service, encoded("PNG")).status_code == 200


def test_chunked_body_that_is_too_large_is_refused(photo_service: RunningService) -> None:
    response = upload(photo_service, (bytes(100_000) for _ in range(40)))  # type: ignore[arg-type]  # sent in chunks
    assert response.status_code == 413


def test_form_of_curl_is_searched(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        files = {"image": ("photo.jpg", encoded("JPEG"), "image/jpeg")}
        response = client.post("/api/v1/search", files=files, data={"k": "3", "labels": ["c", "d"]})
        assert response.status_code == 200
        assert len(response.json()["matches"]) == 3
        options_in_the_address = client.post("/api/v1/search?k=2", files=files)
        assert len(options_in_the_address.json()["matches"]) == 2


BOUNDARY = b"--b"
DISPOSITION = b'Content-Disposition: form-data; name="image"; filename="a.png"\r\n'


def form(*parts: bytes) -> bytes:
    return b"".join(BOUNDARY + b"\r\n" + part + b"\r\n" for part in parts) + BOUNDARY + b"--\r\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"nonsense", 400),
        (BOUNDARY + b"--\r\n", 422),
        (BOUNDARY + b"\r\n" + DISPOSITION + b"\r\nabc", 422),
        (form(b"\r\nabc"), 400),
        (form(b"Content-Disposition: form-data\r\n\r\nabc"), 400),
        (form(b"Content-Disposition: form-data; name=other; filename=a\r\n\r\nabc"), 422),
        (form(DISPOSITION + b"\r\n"), 422),
        (form(DISPOSITION + b"\r\na", DISPOSITION + b"\r\nb"), 400),
        (form(*[b"Content-Disposition: form-data; name=k\r\n\r\n1"] * 300), 400),
        (form(b"X: " + b"y" * 100_000 + b"\r\n\r\nabc"), 400),
        (form(DISPOSITION + b"\r\nabc", b"Content-Disposition: form-data; name=kk\r\n\r\n1"), 422),
        (form(DISPOSITION + b"\r\nabc", b"Content-Disposition: form-data; name=k\r\n\r\nx"), 422),
        (form(b'Content-Disposition: form-data; name="image"\r\n\r\nabc'), 422),
    ],
    ids=[
        "empty", "nonsense", "no parts", "no end", "no disposition", "no name", "another field", "empty file", "two files",
        "many fields", "large header", "unknown option", "wrong option", "no file name",
    ],
)  # fmt: skip
def test_malformed_forms_get_one_sentence(photo_service: RunningService, body: bytes, status: int) -> None:
    response = upload(photo_service, body, "multipart/form-data; boundary=b")
    assert response.status_code == status, response.text
    assert response.json()["detail"].endswith(".")


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=" + "b" * 10_000])
def test_forms_with_a_bad_boundary_get_one_sentence(photo_service: RunningService, kind: str) -> None:
    response = upload(photo_service, form(DISPOSITION + b"\r\nabc"), kind)
    assert response.status_code in {400, 422}
    assert response.json()["detail"].endswith(".")
