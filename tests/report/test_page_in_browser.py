"""The page as people see it: opened from disk by a real browser, at the width of a desk and of a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from helpers.records import RECORDS
from proxyhash.report import compare, write_page
from proxyhash.report.gallery import Gallery, Thumb

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.mark.parametrize("width", [1280, 390])
def test_page_renders_without_errors_at_every_width(browser: Browser, tmp_path: Path, width: int) -> None:
    found = Gallery("shclm, 32 bits", (tuple(Thumb(PIXEL, "cat", bits, bits < 5) for bits in range(11)),))
    write_page(compare(RECORDS), tmp_path / "report.html", galleries=[found])
    page = browser.new_page(viewport={"width": width, "height": 800})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.goto(f"file://{tmp_path}/report.html")
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert page.evaluate("document.images.length") == 6 + 11
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "wide tables scroll by themselves"
    page.get_by_text("Settings of all results").first.click()
    assert page.get_by_text('"versions"').first.is_visible()
    assert said == []
    page.close()
