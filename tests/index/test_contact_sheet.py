"""Contact sheets of search results."""

from pathlib import Path

import pytest
from PIL import Image

from proxyhash import InputError
from proxyhash.index.contact_sheet import SIDE, SheetImage, draw_sheet


def test_contact_sheet_shows_queries_and_matches(tmp_path: Path) -> None:
    red, blue = tmp_path / "red.png", tmp_path / "blue.png"
    Image.new("RGB", (40, 40), "red").save(red)
    Image.new("RGB", (80, 40), "blue").save(blue)
    row = [
        SheetImage(red, "red.png", query=True),
        SheetImage(blue, "a/very/long/name/of/a/file/blue.png", "3 bits"),
        SheetImage(None, "c"),
    ]
    draw_sheet([row, row[:1]], tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as opened:
        sheet = opened.convert("RGB")
    assert sheet.width > 3 * SIDE
    colors = {sheet.getpixel((SIDE // 2, SIDE // 2)), sheet.getpixel((SIDE + SIDE // 2 + 16, SIDE // 2))}
    assert colors == {(255, 0, 0), (0, 0, 255)}
    many = [SheetImage(red, "q", query=True), *[SheetImage(blue, "m")] * 25]
    draw_sheet([many], tmp_path / "many.jpg")
    with Image.open(tmp_path / "many.jpg") as picture:
        assert picture.height > 3 * SIDE
    with pytest.raises(InputError, match=r"must end in .png or .jpg"):
        draw_sheet([row], tmp_path / "sheet.gif")
