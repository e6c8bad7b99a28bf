"""The page as people use it, in a real browser: drop an image, follow results, filter, fail, on a desk and on a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from helpers.service import NASTY, Service, make_code_index, serving

PATIENCE = 60_000  # milliseconds, on a machine that has other things to do

expect.set_options(timeout=PATIENCE)


class Visit:
    """A page of the service, and everything that went wrong on it."""

    def __init__(self, browser: Browser, running: Service, width: int = 1280, path: str = "/") -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 800})
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog {dialog.message}"))
        own = (running.url, "blob:")
        self.page.on("request", lambda request: None if request.url.startswith(own) else self.said.append(request.url))
        self.page.goto(running.url + path)

    def upload(self, path: Path) -> None:
        self.page.set_input_files("#file", path)

    def shows(self, state: str) -> None:
        expect(self.page.locator("body")).to_have_attribute("data-state", state)

    def names(self) -> list[str]:
        return self.page.locator(".card .name").all_text_contents()

    def end(self) -> None:
        fits = self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        self.page.close()
        assert fits
        assert self.said == []


@pytest.mark.parametrize("width", [1280, 390])
def test_from_an_image_to_results_and_on(browser: Browser, photo_service: Service, width: int) -> None:
    photos = photo_service.index.parent / "photos"
    visit = Visit(browser, photo_service, width)
    page = visit.page
    expect(page.locator("#facts")).to_have_text("13 items of 32 bits")
    expect(page.locator(".card.example")).to_have_count(12)
    visit.upload(photos / "c" / "2.png")
    visit.shows("found")
    expect(page.locator("#title")).to_have_text("2.png")
    expect(page.locator(".card")).to_have_count(13)
    assert page.locator(".card .bits").first.text_content() == "0 bits"
    assert page.locator(".card .alike").first.text_content() == "100 % alike"
    far = page.locator(".card").last
    distance = int(str(far.locator(".bits").text_content()).split()[0])
    label = str(far.locator(".strip").get_attribute("aria-label"))
    assert label.startswith(f"{distance} of 32 bits differ:") or distance == 0
    d = str(far.locator(".strip .differs").get_attribute("d"))
    assert d.count("M") == distance
    expect(page.locator("#status")).to_contain_text("13 results, nearest 0 bits away.")

    other = str(far.locator(".name").text_content())
    far.locator("button").click()
    expect(page.locator("#title")).to_have_text(other)
    visit.shows("found")
    assert page.evaluate("document.activeElement.id") == "title"
    page.go_back()
    expect(page.locator("#title")).to_have_text("A code")
    page.locator("#filter button", has_text="d").first.click()
    expect(page.locator(".card")).to_have_count(6)
    assert all(key.startswith("d/") for key in visit.names())
    page.locator("#filter button", has_text="All").click()
    expect(page.locator(".card")).to_have_count(13)
    page.select_option("#k", "12")
    expect(page.locator(".card")).to_have_count(12)
    assert page.evaluate("[...document.images].every(image => image.loading === 'lazy' || image.naturalWidth > 0)")
    visit.end()


def test_what_matches_nothing_is_said_so(browser: Browser, photo_service: Service, tmp_path: Path) -> None:
    from PIL import Image

    Image.effect_mandelbrot((64, 64), (-2.0, -1.5, 1.0, 1.5), 100).save(tmp_path / "other.png")
    visit = Visit(browser, photo_service)
    visit.upload(tmp_path / "other.png")
    visit.shows("none")
    expect(visit.page.locator("#notice h2")).to_have_text("No match")
    expect(visit.page.locator(".card")).to_have_count(13)
    visit.end()


def test_errors_are_shown_and_left_again(browser: Browser, photo_service: Service, tmp_path: Path) -> None:
    (tmp_path / "fake.jpg").write_bytes(b"no picture")
    (tmp_path / "huge.jpg").write_bytes(bytes(3_000_000))
    visit = Visit(browser, photo_service)
    page = visit.page
    visit.upload(tmp_path / "huge.jpg")
    expect(page.locator("#notice")).to_contain_text("The image has 3.0 MB; the service takes at most 2.0 MB.")
    visit.upload(tmp_path / "fake.jpg")
    expect(page.locator("#notice")).to_contain_text(
        "The image cannot be decoded as an image (its format is not recognized)."
    )
    visit.shows("error")
    page.fill("#key", "unknown")
    page.press("#key", "Enter")
    expect(page.locator("#notice")).to_contain_text("The index has no item unknown.")
    visit.said = [line for line in visit.said if "status of 4" not in line]  # the browser's own notes on refusals
    page.fill("#key", "c/4.png")
    page.press("#key", "Enter")
    visit.shows("found")
    assert page.locator("#notice").text_content() == ""
    page.route("**/api/search/**", lambda route: route.abort())
    page.locator(".card button").nth(3).press("Enter")
    expect(page.locator("#notice")).to_contain_text("The service cannot be reached.")
    page.unroute("**/api/search/**")
    page.get_by_role("button", name="Try again").click()
    visit.shows("found")
    visit.said = [line for line in visit.said if "ERR_FAILED" not in line]
    visit.end()


def test_an_image_can_be_dropped_and_pasted(browser: Browser, photo_service: Service) -> None:
    visit = Visit(browser, photo_service)
    page = visit.page
    picture = list((photo_service.index.parent / "photos" / "d" / "3.png").read_bytes())
    made = "const data = new DataTransfer(); data.items.add(new File([new Uint8Array(bytes)], name, {type: 'image/png'}));"
    for name, event in (
        ("dropped.png", "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"),
        ("pasted.png", "new ClipboardEvent('paste', {clipboardData: data, bubbles: true})"),
    ):
        page.evaluate(f"([bytes, name]) => {{ {made} document.body.dispatchEvent({event}); }}", [picture, name])
        expect(page.locator("#title")).to_have_text(name)
        visit.shows("found")
    visit.end()


def test_a_file_that_comes_early_is_not_lost(browser: Browser, photo_service: Service) -> None:
    visit = Visit(browser, photo_service)
    page = visit.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/info", hold)
    page.reload()
    visit.upload(photo_service.index.parent / "photos" / "d" / "3.png")
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    visit.shows("found")
    expect(page.locator("#title")).to_have_text("3.png")
    visit.end()


def test_a_link_may_carry_what_others_added(browser: Browser, photo_service: Service) -> None:
    visit = Visit(browser, photo_service, path="/?from=a-letter#like=c/2.png")
    visit.shows("found")
    expect(visit.page.locator("#title")).to_have_text("c/2.png")
    visit.end()


def test_names_are_text_and_nothing_else(browser: Browser, photo_service: Service) -> None:
    visit = Visit(browser, photo_service)
    visit.page.fill("#key", f"{NASTY}/{NASTY}.png")
    visit.page.press("#key", "Enter")
    expect(visit.page.locator("#title")).to_have_text(f"{NASTY}/{NASTY}.png")
    visit.shows("found")
    expect(visit.page.locator(".card .labels", has_text=NASTY)).to_have_text(NASTY)
    expect(visit.page.locator("#filter button", has_text=NASTY)).to_be_visible()
    assert visit.page.locator("img[src=x]").count() == 0
    visit.end()


def test_codes_from_elsewhere_are_shown_as_codes(browser: Browser, tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 40), token=None) as running:
        visit = Visit(browser, running, path="/#like=item+7&k=12")
        visit.shows("found")
        assert not visit.page.locator("#drop").is_visible()
        expect(visit.page.locator(".card .mosaic")).to_have_count(12)
        visit.said = [line for line in visit.said if "status of 404" not in line]
        visit.end()
