"""The page in a real browser: searches, filters, errors, drag and drop, and the keyboard, on a desktop and on a phone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image
from playwright.sync_api import Browser, Route, expect

from helpers.page_session import PageSession
from helpers.service import NASTY, RunningService, make_code_index, serving
from proxyhash.serve import create_app

FULL_PRECISION = "same label: 100\u00a0%"


@pytest.fixture
def other_image(tmp_path: Path) -> Path:
    """Return an image whose code equals no code of the index, so that it has no match."""
    Image.effect_mandelbrot((64, 64), (-2.0, -1.5, 1.0, 1.5), 100).save(tmp_path / "other.png")
    return tmp_path / "other.png"


def photo(service: RunningService, name: str) -> Path:
    return service.index.parent / "photos" / name


@pytest.mark.parametrize("width", [1280, 390])
def test_image_search_leads_to_results_and_further_searches(
    browser: Browser, photo_service: RunningService, width: int
) -> None:
    session = PageSession(browser, photo_service.url, width=width)
    page = session.page
    expect(page.locator("#info")).to_have_text("13 items of 32 bits")
    expect(page.locator(".card.sample")).to_have_count(12)
    session.upload(photo(photo_service, "c/2.png"))
    session.expect_state("results")
    session.expect_title("2.png")
    expect(page.locator(".card")).to_have_count(13)
    assert page.locator(".card .distance").first.text_content() == "0 bits"
    last = page.locator(".card").last
    distance = int(str(last.locator(".distance").text_content()).split()[0])
    label = str(last.locator(".strip").get_attribute("aria-label"))
    assert label.startswith(f"{distance} of 32 bits differ:") or distance == 0
    assert str(last.locator(".strip .differs").get_attribute("d")).count("M") == distance
    expect(page.locator("#status")).to_contain_text("13 results, nearest 0 bits away.")

    key = str(last.locator(".name").text_content())
    last.locator("a").click()
    session.expect_title(key)
    session.expect_state("results")
    assert session.focused_id() == "title"
    page.go_back()
    session.expect_title("A code")
    page.locator("#filter button", has_text="d").first.click()
    expect(page.locator(".card")).to_have_count(6)
    assert all(key.startswith("d/") for key in session.item_keys())
    page.locator("#filter button", has_text="All").click()
    expect(page.locator(".card")).to_have_count(13)
    page.select_option("#k", "12")
    expect(page.locator(".card")).to_have_count(12)
    assert page.evaluate("[...document.images].every(image => image.loading === 'lazy' || image.naturalWidth > 0)")
    session.close()


def test_expected_precision_is_explained(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url, "/#key=c/2.png")
    session.expect_state("results")
    precision = session.page.locator(".card .precision").first
    expect(precision).to_have_text(FULL_PRECISION)
    sentence = "Of the pairs of validation images at this distance, 100\u00a0% have the same label."
    assert precision.get_attribute("title") == sentence
    expect(session.page.locator("#precision-note")).to_contain_text("It describes the distance, not the single item.")
    assert "alike" not in str(session.page.text_content("body"))
    session.close()


def test_no_match_is_explained(browser: Browser, photo_service: RunningService, other_image: Path) -> None:
    session = PageSession(browser, photo_service.url)
    page = session.page
    session.upload(other_image)
    session.expect_state("no-match")
    expect(page.locator("#notice h2")).to_have_text("No match")
    expect(page.locator(".card")).to_have_count(13)
    explanation = page.locator("#notice details")
    expect(explanation.locator("p").first).not_to_be_visible()
    explanation.locator("summary").click()
    expect(explanation).to_contain_text("calibrated")
    expect(explanation.locator(".threshold")).to_have_text("50\u00a0%")
    expect(explanation.locator(".share")).to_have_text("20\u00a0%")
    expect(explanation.locator(".distance")).to_have_text(str(page.locator(".card .distance").first.text_content()))
    expect(explanation).to_contain_text("The nearest items are shown below anyway.")
    session.close()


def test_errors_are_shown_and_cleared(browser: Browser, photo_service: RunningService, tmp_path: Path) -> None:
    (tmp_path / "fake.jpg").write_bytes(b"no picture")
    (tmp_path / "huge.jpg").write_bytes(bytes(3_000_000))
    session = PageSession(browser, photo_service.url)
    page = session.page
    session.upload(tmp_path / "huge.jpg")
    expect(page.locator("#notice")).to_contain_text("The image has 3.0 MB; the service takes at most 2.0 MB.")
    session.upload(tmp_path / "fake.jpg")
    expect(page.locator("#notice")).to_contain_text("cannot be decoded as an image (its format is not recognized).")
    session.expect_state("error")
    session.search_key("unknown")
    expect(page.locator("#notice")).to_contain_text("The index has no item unknown.")
    session.ignore("status of 4")
    session.search_key("c/4.png")
    session.expect_state("results")
    expect(page.locator("#notice")).not_to_be_visible()
    page.route("**/api/v1/search", lambda route: route.abort())
    page.locator(".card a").nth(3).press("Enter")
    expect(page.locator("#notice")).to_contain_text("The service cannot be reached.")
    page.unroute("**/api/v1/search")
    page.get_by_role("button", name="Try again").click()
    session.expect_state("results")
    session.ignore("ERR_FAILED")
    session.close()


def test_request_to_a_busy_service_is_sent_again(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    refused: list[Route] = []

    def refuse_once(route: Route) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route)
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"detail": "The service is busy."})

    session.page.route("**/api/v1/search", refuse_once)
    session.search_key("c/4.png")
    session.expect_state("results")
    assert len(refused) == 1
    session.ignore("status of 503")
    session.close()


def test_query_before_the_page_is_ready_is_searched(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url, "/docs")
    waiting: list[Route] = []
    session.page.route("**/api/v1/info", lambda route: waiting.append(route))  # noqa: PLW0108  # Playwright sets an attribute.
    session.page.goto(photo_service.url)
    session.search_key("c/4.png")
    session.expect_state("start")
    assert len(waiting) == 1
    waiting[0].continue_()
    session.expect_state("results")
    session.expect_title("c/4.png")
    session.close()


def test_image_can_be_dropped_and_pasted(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    data = list(photo(photo_service, "d/3.png").read_bytes())
    make = "const data = new DataTransfer(); data.items.add(new File([new Uint8Array(bytes)], name, {type: 'image/png'}));"
    for name, event in (
        ("dropped.png", "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"),
        ("pasted.png", "new ClipboardEvent('paste', {clipboardData: data, bubbles: true})"),
    ):
        session.page.evaluate(f"([bytes, name]) => {{ {make} document.body.dispatchEvent({event}); }}", [data, name])
        session.expect_title(name)
        session.expect_state("results")
    session.close()


@pytest.mark.parametrize("path", ["/", "/#key=c/2.png"])
def test_item_can_be_dragged_onto_the_search_box(browser: Browser, photo_service: RunningService, path: str) -> None:
    session = PageSession(browser, photo_service.url, path)
    page = session.page
    card = page.locator(".card a").nth(3)  # it and the search box are visible together
    key = str(card.locator(".name").text_content())
    before = page.locator("#title").text_content()
    card.drag_to(page.locator(".card a").nth(1))
    assert page.locator("#title").text_content() == before
    card.drag_to(page.locator("#drop"))
    session.expect_title(key)
    session.expect_state("results")
    assert page.locator("body").get_attribute("data-drag") is None
    session.close()


def test_file_chosen_before_the_service_answers_is_searched(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    page = session.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/v1/info", hold)
    page.reload()
    session.upload(photo(photo_service, "d/3.png"))
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    session.expect_state("results")
    session.expect_title("3.png")
    session.close()


def test_link_with_additional_parameters_is_followed(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url, "/?from=a-letter#key=c/2.png")
    session.expect_state("results")
    session.expect_title("c/2.png")
    session.close()


def test_names_are_shown_as_text(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    page = session.page
    session.search_key(f"{NASTY}/{NASTY}.png")
    session.expect_title(f"{NASTY}/{NASTY}.png")
    session.expect_state("results")
    expect(page.locator(".card .labels", has_text=NASTY)).to_have_text(NASTY)
    expect(page.locator("#filter button", has_text=NASTY)).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("document.querySelector('#query img').decode().then(() => true)")
    session.close()


def test_codes_without_images_are_drawn(browser: Browser, tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 40), {"token": None}) as running:
        session = PageSession(browser, running.url, "/#key=item+7&k=12")
        page = session.page
        session.expect_state("results")
        expect(page.locator(".card .mosaic")).to_have_count(12)
        expect(page.locator("#drop")).not_to_be_visible()
        expect(page.locator("#precision-note")).not_to_be_visible()
        assert set(page.locator(".card .precision").all_text_contents()) == {""}
        card = page.locator(".card a").nth(5)
        key = str(card.locator(".name").text_content())
        card.drag_to(page.locator("#options"))
        session.expect_title(key)
        session.ignore("status of 404")
        session.close()


def test_label_filter_applies_to_the_whole_index(browser: Browser, tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 200), {"token": None}) as running:
        session = PageSession(browser, running.url, "/#key=item+7&k=12&label=even")
        page = session.page
        expect(page.locator(".card .labels")).to_have_text(["even"] * 12)
        expect(page.locator("#filter button[aria-pressed=true]")).to_have_text("even")
        page.locator("#filter button", has_text="All").click()
        expect(page.locator(".card .labels", has_text="odd").first).to_be_visible()
        page.goto(f"{running.url}/#key=item+7&label=unknown")
        expect(page.locator("#notice")).to_contain_text("No item has the label unknown.")
        page.locator("#filter button", has_text="All").click()
        expect(page.locator(".card")).to_have_count(12)
        session.ignore("status of 404")
        session.close()


def test_keys_move_between_results_and_search(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url, "/#key=c/2.png")
    page = session.page
    session.expect_state("results")
    keys = session.item_keys()
    columns = int(
        page.evaluate("getComputedStyle(document.getElementById('results')).gridTemplateColumns.split(' ').length")
    )
    assert 1 < columns < len(keys)
    for key, index in (
        ("ArrowDown", 0),
        ("ArrowRight", 1),
        ("ArrowDown", 1 + columns),
        ("ArrowLeft", columns),
        ("ArrowUp", 0),
        ("ArrowUp", 0),
        ("End", len(keys) - 1),
        ("ArrowRight", len(keys) - 1),
        ("ArrowDown", len(keys) - 1),
        ("Home", 0),
        ("ArrowRight", 1),
    ):
        page.keyboard.press(key)
        assert session.focused_key() == keys[index], key
    page.keyboard.press("Enter")
    session.expect_title(keys[1])
    assert session.focused_id() == "title"
    page.keyboard.press("Escape")
    session.expect_state("start")
    expect(page.locator(".card.sample")).to_have_count(12)
    page.go_back()
    session.expect_title(keys[1])
    session.close()


def test_slash_focuses_the_key_field_where_shortcuts_are_text(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    page = session.page
    expect(page.locator(".card.sample")).to_have_count(12)
    page.keyboard.press("/")
    assert session.focused_id() == "key"
    page.keyboard.type("a/b?")
    assert page.input_value("#key") == "a/b?"
    expect(page.locator("#help")).not_to_be_visible()
    page.keyboard.press("ArrowDown")
    assert session.focused_id() == "key"
    page.keyboard.press("Escape")
    assert page.input_value("#key") == ""
    assert session.focused_id() == ""
    session.close()


def test_help_lists_the_keys(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url)
    page = session.page
    dialog = page.locator("#help")
    page.keyboard.press("?")
    expect(dialog).to_be_visible()
    for text in ("/", "Enter", "Esc", "Ctrl", "?", "Move between results"):
        expect(dialog).to_contain_text(text)
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(dialog).to_be_visible()
    page.locator("#single-keys").uncheck()
    page.get_by_role("button", name="Close").click()
    expect(dialog).not_to_be_visible()
    page.reload()
    expect(page.locator(".card.sample")).to_have_count(12)
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(dialog).not_to_be_visible()
    assert session.focused_id() == ""
    session.close()


def test_page_without_javascript_links_to_the_documentation(browser: Browser, photo_service: RunningService) -> None:
    session = PageSession(browser, photo_service.url, java_script_enabled=False)
    expect(session.page.locator(".no-script")).to_contain_text("This page needs JavaScript.")
    expect(session.page.locator("#search-box")).not_to_be_visible()
    session.page.locator(".no-script a").click()
    expect(session.page.locator("h1")).to_contain_text("API")
    session.page.close()
    assert session.problems == []


@contextmanager
def serving_below_a_path(index: Path) -> Iterator[str]:
    """Serve the application mounted below a path of another one, in a thread."""
    inner, outer = create_app(index), FastAPI()
    outer.mount("/some/path", inner)
    server = uvicorn.Server(uvicorn.Config(outer, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/some/path"
    finally:
        server.should_exit = True
        thread.join(60)
        inner.state.service.close()


def test_page_works_below_a_path(browser: Browser, tmp_path: Path) -> None:
    with serving_below_a_path(make_code_index(tmp_path / "i", 40)) as url:
        session = PageSession(browser, url, "/#key=item+7&k=12")
        page = session.page
        expect(page.locator(".card .mosaic")).to_have_count(12)
        page.locator(".card a").nth(3).click()
        expect(page.locator("#title")).not_to_have_text("item 7")
        session.expect_state("results")
        page.locator(".brand").click()
        session.expect_state("start")
        assert page.url == f"{url}/"
        page.get_by_role("link", name="API").click()
        expect(page.locator("h1")).to_contain_text("API")
        page.get_by_role("link", name="openapi.json").click()
        assert page.url == f"{url}/openapi.json"
        session.page.close()
        session.ignore("status of 404")
        assert session.problems == []
