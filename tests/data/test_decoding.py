import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from helpers.images import smooth_image
from proxyhash.data.decoding import MAX_PIXELS, Pixels, UnreadableImageError, decode_image, decode_pixels, decode_square

RED, WHITE = (255, 0, 0), (255, 255, 255)


def oriented(path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(smooth_image(1, 32, 16)).save(path, exif=exif)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("extension", ["jpg", "png", "tif", "webp"])
def test_every_orientation_is_turned_upright(orientation: int, extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{extension}"
    oriented(path, orientation)
    with Image.open(path) as stored:
        upright = ImageOps.exif_transpose(stored).convert("RGB")
    np.testing.assert_array_equal(decode_pixels(path), np.asarray(upright))
    if extension == "png":  # by hand, too: the camera's right is the picture's bottom, and so on
        pixels = smooth_image(1, 32, 16)
        turned = [
            pixels,
            pixels[:, ::-1],
            pixels[::-1, ::-1],
            pixels[::-1],
            pixels.swapaxes(0, 1),
            pixels[::-1].swapaxes(0, 1),
            pixels[::-1, ::-1].swapaxes(0, 1),
            pixels[:, ::-1].swapaxes(0, 1),
        ]
        np.testing.assert_array_equal(decode_pixels(path), turned[orientation - 1])


def saved(tmp_path: Path, image: Image.Image, name: str = "a.png", **options: object) -> Path:
    image.save(tmp_path / name, **options)  # type: ignore[arg-type]
    return tmp_path / name


def test_gray_and_one_bit_pictures(tmp_path: Path) -> None:
    gray = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, Image.fromarray(gray))), np.repeat(gray[..., None], 3, 2))
    bits = Image.fromarray(gray > 99)
    assert bits.mode == "1"
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, bits))[..., 1], np.where(gray > 99, 255, 0))


def test_deep_greys_keep_their_high_byte(tmp_path: Path) -> None:
    deep = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    for name in ("a.png", "a.tif", "a.pgm"):
        found = decode_pixels(saved(tmp_path, Image.fromarray(deep), name))
        np.testing.assert_array_equal(found[..., 0], deep >> 8)
    dark = saved(tmp_path, Image.fromarray(np.full((2, 2), 200, np.uint16)))
    assert decode_pixels(dark).max() == 0  # nearly black, however bright 200 would be in 8 bits


def test_whole_numbers_of_32_bits_that_fit_a_byte_are_bytes(tmp_path: Path) -> None:
    small = np.arange(256, dtype=np.int32).reshape(16, 16)
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, Image.fromarray(small), "a.tif"))[..., 2], small)
    found = decode_pixels(saved(tmp_path, Image.fromarray(small * 256), "b.tif"))
    np.testing.assert_array_equal(found[..., 2], small)


def test_floats_are_shares_or_bytes(tmp_path: Path) -> None:
    shares = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    found = decode_pixels(saved(tmp_path, Image.fromarray(shares), "a.tif"))
    np.testing.assert_array_equal(found[..., 0], (shares.astype(np.float64) * 255).astype(np.uint8))
    large = np.array([[-5, 3.7, np.nan], [255, 999, np.inf]], np.float32)
    found = decode_pixels(saved(tmp_path, Image.fromarray(large), "b.tif"))
    np.testing.assert_array_equal(found[..., 0], [[0, 3, 0], [255, 255, 255]])


def test_palettes_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (4, 2))
    image.putpalette([*RED, 0, 0, 255])
    image.putdata([0, 1] * 4)
    expected = np.array([[RED, (0, 0, 255)] * 2] * 2, np.uint8)
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, image)), expected)
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, image, "a.gif")), expected)
    over_white = np.array([[RED, WHITE] * 2] * 2, np.uint8)
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, image, "b.png", transparency=1)), over_white)
    half = saved(tmp_path, image, "c.png", transparency=bytes([255, 128]))
    np.testing.assert_array_equal(decode_pixels(half)[0, 1], [127, 127, 255])


def test_transparency_lies_over_white(tmp_path: Path) -> None:
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 0], pixels[0, :, 3] = 200, [255, 0, 51]
    np.testing.assert_array_equal(
        decode_pixels(saved(tmp_path, Image.fromarray(pixels)))[0], [(200, 0, 0), WHITE, (244, 204, 204)]
    )
    gray = Image.fromarray(pixels[..., [0, 3]])
    assert gray.mode == "LA"
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, gray))[0, :2], [(200, 200, 200), WHITE])
    key = Image.new("RGB", (2, 1), RED)
    key.putpixel((1, 0), (1, 2, 3))
    np.testing.assert_array_equal(decode_pixels(saved(tmp_path, key, "k.png", transparency=(1, 2, 3)))[0], [RED, WHITE])


def test_cmyk_photographs(tmp_path: Path) -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    found = decode_pixels(saved(tmp_path, image, "a.jpg", quality=95))
    assert np.abs(found.astype(int) - RED).max() <= 3


def test_an_animation_is_its_first_picture(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (6, 6), color) for color in ("red", "blue")]
    path = saved(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode_pixels(path), np.full((6, 6, 3), RED))


def png_of(width: int, height: int) -> bytes:
    """A small file that claims to be a huge picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("times", [1.1, 2.5])
@pytest.mark.parametrize("filters", ["ignore", "error"])
def test_a_decompression_bomb_is_refused_whatever_becomes_of_warnings(
    times: float, filters: "warnings._ActionKind", tmp_path: Path
) -> None:
    (tmp_path / "bomb.png").write_bytes(png_of(int(MAX_PIXELS * times) // 10_000, 10_000))
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        with pytest.raises(UnreadableImageError, match=r"bomb\.png has more than 89,478,485 pixels, which is refused"):
            decode_image(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"a\.jpg is empty\.$"),
        (b"this is text", "its format is not recognized"),
        (b"\xff\xd8\xff\xe0 nearly", "a.jpg cannot be decoded as an image"),
        (b"\x89PNG\r\n\x1a\n", "a.jpg cannot be decoded as an image"),
        (b"GIF89a", "a.jpg cannot be decoded as an image"),
        (b"BM" + bytes(60), "a.jpg cannot be decoded as an image"),
        (b"II*\x00" + bytes(100), "a.jpg cannot be decoded as an image"),
    ],
)
def test_what_is_no_image_is_named(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(UnreadableImageError, match=why):
        decode_image(tmp_path / "a.jpg")


def test_postscript_is_never_run(tmp_path: Path) -> None:
    path = tmp_path / "picture.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) print showpage\n%%EOF\n")
    with pytest.raises(UnreadableImageError, match="its format is not recognized"):
        decode_image(path)


def test_truncated_missing_and_other_things_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.fromarray(smooth_image(0, 64, 64)), "a.jpg")
    path.write_bytes(path.read_bytes()[:-300])
    for read in (lambda: decode_image(path), lambda: decode_square(path, 8, "cover")):
        with pytest.raises(UnreadableImageError, match=r"a.jpg cannot be decoded as an image \(.*truncated"):
            read()
    with pytest.raises(UnreadableImageError, match=r"b\.jpg is not there"):
        decode_image(tmp_path / "b.jpg")
    with pytest.raises(UnreadableImageError, match=r"cannot be decoded as an image \(Is a directory\)\.$"):
        decode_image(tmp_path)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_is_passed_over(tmp_path: Path) -> None:
    pixels = smooth_image(2, 16, 16)
    for name, exif in (("a.jpg", b"Exif\x00\x00garbage here"), ("b.jpg", b"Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff")):
        path = saved(tmp_path, Image.fromarray(pixels), name, exif=exif, quality=95)
        assert decode_pixels(path).shape == (16, 16, 3)
        assert np.abs(decode_pixels(path).astype(int) - pixels).mean() < 10


@pytest.mark.parametrize(("width", "height"), [(40, 30), (31, 47), (20, 20), (16, 18)])
def test_squash_and_cover_are_what_pillow_gives(width: int, height: int, tmp_path: Path) -> None:
    image = Image.fromarray(smooth_image(3, width, height))
    path = saved(tmp_path, image)
    squashed = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(decode_square(path, 16, "squash"), squashed)
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    covered = np.asarray(image.crop((left, top, left + short, top + short)).resize((16, 16), Image.Resampling.BILINEAR))
    inner = np.s_[1:-1, 1:-1]  # at its border, the filter sees what lies beyond the square
    np.testing.assert_allclose(decode_square(path, 16, "cover")[inner].astype(int), covered[inner], atol=1)


def test_cover_takes_the_centre_and_squash_takes_all(tmp_path: Path) -> None:
    stripes = np.zeros((10, 30, 3), np.uint8)
    stripes[:, 10:20] = 255
    path = saved(tmp_path, Image.fromarray(stripes))
    assert decode_square(path, 10, "cover").min() == 255
    np.testing.assert_array_equal(decode_square(path, 3, "squash")[1, :, 0] > 127, [False, True, False])


def sharp_photograph(width: int, height: int) -> Pixels:
    """Edges, gradients and texture: what a shortcut in decoding would show on."""
    rows, columns = np.mgrid[:height, :width]
    waves = 127 + 60 * np.sin(columns / 9) + 60 * np.cos(rows / 13)
    return np.stack([waves, np.where((rows // 40 + columns // 40) % 2, 220, 30), 255 - waves], 2).astype(np.uint8)


@pytest.mark.parametrize(("width", "height", "scaled"), [(1200, 900, True), (500, 375, False), (257, 2000, False)])
def test_decoding_at_a_fraction_stays_close_and_never_below(width: int, height: int, scaled: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, Image.fromarray(sharp_photograph(width, height)), "a.jpg", quality=92)
    smaller = decode_image(path, min_side=256)
    assert min(smaller.size) >= 256
    assert (smaller.size != (width, height)) == scaled
    for fit in ("squash", "cover"):
        found = decode_square(path, 256, fit).astype(int)
        with Image.open(path) as image:
            short, whole = min(width, height), image.convert("RGB")
        left, top = (width - short) / 2, (height - short) / 2
        box = (left, top, left + short, top + short) if fit == "cover" else None
        full = np.asarray(whole.resize((256, 256), Image.Resampling.BILINEAR, box=box)).astype(int)
        assert np.abs(found - full).mean() < (6 if scaled else 1)
