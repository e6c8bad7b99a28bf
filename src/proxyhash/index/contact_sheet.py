"""Contact sheet of search results: a row for each query, its image first, then the matches with their distances."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from proxyhash.data.decoding import UnreadableImageError, decode_image
from proxyhash.index.results import Matches
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

SIDE, GAP, CAPTION = 128, 8, 30
INK, GRAY, PAPER, ACCENT = "#1b1b1b", "#6f6f6f", "#ffffff", "#0b6e99"
COLUMNS = 10  # matches in a row; more go on in the next


@dataclass(frozen=True)
class SheetImage:
    """One image of the sheet and the two lines of text below it."""

    path: Path | None
    title: str
    note: str = ""
    query: bool = False


def draw_matches(query_paths: Sequence[Path | None], found: Sequence[Matches], path: Path) -> None:
    """Draw the matches of each query, the query first, as a .png or .jpg file."""
    rows = []
    for query_path, matches in zip(query_paths, found, strict=True):
        note = "no match" if matches.matched is False else f"{len(matches):,} found"
        row = [SheetImage(query_path, matches.query, note, query=True)]
        for match in matches:
            labels = ", ".join(match.labels)
            row.append(SheetImage(match.path, match.key, f"{match.distance} bits{labels and ', ' + labels}"))
        rows.append(row)
    draw_sheet(rows, path)


def draw_sheet(rows: Sequence[Sequence[SheetImage]], path: Path) -> None:
    """Draw rows of images, each beginning with its query, as a .png or .jpg file."""
    if path.suffix.lower() not in {".png", ".jpg", ".jpeg"}:
        raise InputError(f"The image {path} must end in .png or .jpg.")
    lines = [line for row in rows for line in _lines(row)]
    columns = max(len(line) for line in lines)
    cell_width, cell_height = SIDE + GAP, SIDE + CAPTION + GAP
    sheet = Image.new("RGB", (columns * cell_width + GAP, len(lines) * cell_height + GAP), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for down, line in enumerate(lines):
        for across, image in enumerate(line):
            if image is not None:
                _draw(sheet, draw, font, image, GAP + across * cell_width, GAP + down * cell_height)
    with atomic_write(path) as temporary:
        sheet.save(temporary)


def _lines(row: Sequence[SheetImage]) -> list[list[SheetImage | None]]:
    """Split a row into lines; the query is at the beginning of the first."""
    query, matches = row[0], row[1:]
    starts = range(0, max(1, len(matches)), COLUMNS)
    parts: list[list[SheetImage | None]] = [list(matches[start : start + COLUMNS]) for start in starts]
    return [[query if number == 0 else None, *part] for number, part in enumerate(parts)]


def _draw(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    image: SheetImage, left: int, top: int,
) -> None:  # fmt: skip
    thumb = _thumb(image.path)
    if thumb is None:
        draw.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), outline=GRAY)
        draw.text((left + SIDE // 2, top + SIDE // 2), "no image", GRAY, font, anchor="mm")
    else:
        sheet.paste(thumb, (left + (SIDE - thumb.width) // 2, top + (SIDE - thumb.height) // 2))
    if image.query:
        draw.rectangle((left - 3, top - 3, left + SIDE + 2, top + SIDE + 2), outline=ACCENT, width=3)
    draw.text((left, top + SIDE + 4), _fitted(draw, font, image.title), INK, font)
    draw.text((left, top + SIDE + 16), _fitted(draw, font, image.note), GRAY, font)


def _thumb(path: Path | None) -> Image.Image | None:
    if path is None:
        return None
    try:
        image = decode_image(path, min_side=SIDE)
    except UnreadableImageError:
        return None
    scale = SIDE / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)


def _fitted(draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, text: str) -> str:
    """Shorten a text from its beginning: file names differ at the end."""
    if draw.textlength(text, font) <= SIDE:
        return text
    while len(text) > 1 and draw.textlength(f"…{text}", font) > SIDE:
        text = text[1:]
    return f"…{text}"
