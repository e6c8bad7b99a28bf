"""Accessibility of the page and of the API documentation: rules of axe in every state, and contrast of all colors."""

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, expect

from helpers.page_session import PageSession
from helpers.service import RunningService

TEXT_CONTRAST = 4.5  # WCAG 2.2 AA, 1.4.3
GRAPHIC_CONTRAST = 3.0  # 1.4.11

TEXT_PAIRS = [
    *((color, surface) for color in ("text", "muted", "accent") for surface in ("background", "surface", "subtle")),
    *((color, "warning") for color in ("text", "accent")),
    *((color, "tint") for color in ("text", "muted")),
    ("on-accent", "accent"),
    ("differs", "surface"),
    ("differs", "background"),
]
# Bits that are off are drawn as gaps; their number is in the text for screen readers.
GRAPHIC_PAIRS = [
    *((color, "surface") for color in ("field-border", "bit-on", "differs", "accent")),
    *((color, "background") for color in ("field-border", "bit-on", "accent")),
    ("bit-on", "subtle"),
    ("bit-on", "bit-off"),
    ("accent", "tint"),
]


def open_start(session: PageSession, _: Path) -> None:
    expect(session.page.locator(".card.sample")).to_have_count(12)


def open_results(session: PageSession, _: Path) -> None:
    session.search_key("c/4.png")
    session.expect_state("results")


def open_label_filter(session: PageSession, folder: Path) -> None:
    open_results(session, folder)
    session.page.locator("#filter button", has_text="d").first.click()
    expect(session.page.locator(".card")).to_have_count(6)


def open_no_match(session: PageSession, folder: Path) -> None:
    Image.effect_mandelbrot((64, 64), (-2.0, -1.5, 1.0, 1.5), 100).save(folder / "other.png")
    session.upload(folder / "other.png")
    session.expect_state("no-match")
    session.page.locator("#notice summary").click()


def open_error(session: PageSession, _: Path) -> None:
    session.search_key("unknown")
    session.expect_state("error")


def open_help(session: PageSession, _: Path) -> None:
    session.page.locator("#open-help").click()
    expect(session.page.locator("#help")).to_be_visible()


def open_columns(session: PageSession) -> None:
    session.search_key("05.png")
    session.expect_state("results")
    session.filter("year < 2005")
    expect(session.page.locator(".card")).to_have_count(5)
    session.page.locator(".columns summary").first.click()


def open_wrong_filter(session: PageSession) -> None:
    session.search_key("05.png")
    session.expect_state("results")
    session.filter("yaer < 2005")
    session.expect_state("unsearched")


def open_filtered_start(session: PageSession) -> None:
    session.filter("year > 2030")
    expect(session.page.locator("#notice")).to_be_visible()


def open_docs(session: PageSession, _: Path) -> None:
    session.page.get_by_role("link", name="API").click()
    expect(session.page.locator("h1")).to_contain_text("API")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "open_state", [open_start, open_results, open_label_filter, open_no_match, open_error, open_help, open_docs]
)
def test_axe_finds_nothing_serious(
    browser: Browser,
    photo_service: RunningService,
    tmp_path: Path,
    open_state: Callable[[PageSession, Path], None],
    width: int,
    scheme: str,
) -> None:
    session = PageSession(browser, photo_service.url, width=width, color_scheme=scheme, reduced_motion="reduce")
    open_state(session, tmp_path)
    assert serious_findings(session) == []
    session.ignore("status of 404")
    session.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("open_state", [open_columns, open_wrong_filter, open_filtered_start])
def test_axe_finds_nothing_serious_with_a_filter(
    browser: Browser, column_service: RunningService, open_state: Callable[[PageSession], None], width: int, scheme: str
) -> None:
    session = PageSession(browser, column_service.url, width=width, color_scheme=scheme, reduced_motion="reduce")
    session.page.locator("#toggle-where-help").click()
    expect(session.page.locator("#where-help tbody tr")).to_have_count(6)
    open_state(session)
    assert serious_findings(session) == []
    session.ignore("status of 422")
    session.close()


def serious_findings(session: PageSession) -> list[tuple[str, str, list[str]]]:
    findings = Axe().run(session.page).response["violations"]
    found = [(finding["id"], finding["impact"], [node["html"] for node in finding["nodes"]]) for finding in findings]
    return [finding for finding in found if finding[1] in ("serious", "critical")]


def read_colors() -> dict[str, dict[str, str]]:
    """Return the colors of each scheme from the style sheet."""
    sheet = resources.files("proxyhash.serve").joinpath("page", "theme.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6});", part)) for part in sheet.split("@media")[:2])
    return {"light": light, "dark": {**light, **dark}}


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG."""
    digits = color.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    channels = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT_PAIRS, TEXT_CONTRAST), (GRAPHIC_PAIRS, GRAPHIC_CONTRAST)])
def test_colors_have_enough_contrast(scheme: str, pairs: list[tuple[str, str]], least: float) -> None:
    colors = read_colors()[scheme]
    ratios = {(color, surface): round(contrast(colors[color], colors[surface]), 2) for color, surface in pairs}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < least} == {}


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)


def test_all_colors_are_in_the_theme() -> None:
    folder = resources.files("proxyhash.serve").joinpath("page")
    for name in ("style.css", "docs.css"):
        assert re.findall(r": [^;]*#[0-9a-f]{3,6}\b", folder.joinpath(name).read_text(encoding="utf-8")) == []
