"""The filter of the page in a real browser, and the columns of items on it."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from helpers.models import make_vector_model
from helpers.page_session import PageSession
from helpers.service import NASTY, RunningService, make_code_index, serving
from proxyhash.index.local.index import LocalIndex

WHERE = "year >= 2010 and label == 'even'"
KEPT = {f"{number}.png" for number in range(10, 23, 2)}


def upload(session: PageSession, service: RunningService, name: str = "04.png") -> None:
    session.upload(service.index.parent / "photos" / name)


def address_state(page: Page) -> dict[str, list[str]]:
    """Return the state that the address of the page holds."""
    return parse_qs(urlsplit(page.url).fragment)


@pytest.mark.parametrize("width", [1280, 390])
def test_filter_restricts_every_search(browser: Browser, column_service: RunningService, width: int) -> None:
    session = PageSession(browser, column_service.url, width=width)
    page = session.page
    page.fill("#where", WHERE)
    upload(session, column_service)
    session.expect_title("04.png")
    expect(page.locator(".card")).to_have_count(len(KEPT))
    assert set(session.item_keys()) == KEPT
    assert address_state(page)["where"] == [WHERE]

    page.locator(".card a").nth(2).click()
    expect(page.locator("#title")).not_to_have_text("04.png")
    session.expect_state("results")
    assert set(session.item_keys()) == KEPT
    session.search_key("07.png")
    session.expect_title("07.png")
    session.expect_state("results")
    assert set(session.item_keys()) == KEPT

    query = {"key": "05.png", "k": 1}
    code = httpx.post(f"{column_service.url}/api/v1/search", json=query).json()["code"]
    page.goto(f"{column_service.url}/#code={code}&where=year+%3C+2003")
    session.expect_title("A code")
    expect(page.locator(".card")).to_have_count(3)
    expect(page.locator("#where")).to_have_value("year < 2003")
    session.close()


def test_filter_restricts_a_search_by_vector(browser: Browser, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    with LocalIndex.open_folder(tmp_path / "i", model=make_vector_model(8, 32, 0, tmp_path / "encoder")) as index:
        index.add(vectors, [f"text {row}" for row in range(40)], columns={"row": range(40)})
    with serving(tmp_path / "i", {"token": None}) as running:
        session = PageSession(browser, running.url)
        session.page.fill("#where", "row in (3, 5, 9)")
        session.page.fill("#vector", " ".join(map(str, vectors[5].tolist())))
        session.page.press("#vector", "Enter")
        session.expect_title("Pasted vector")
        expect(session.page.locator(".card")).to_have_count(3)
        assert session.item_keys()[0] == "text 5"
        assert set(session.item_keys()) == {"text 3", "text 5", "text 9"}
        session.close()


def test_wrong_filter_is_explained_and_the_query_stays(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url)
    page = session.page
    page.fill("#where", "yaer > 2010")
    upload(session, column_service)
    session.expect_state("unsearched")
    expect(page.locator("#where-error")).to_have_text("The index has no column yaer; did you mean year?")
    expect(page.locator("#where")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#where")).to_have_attribute("aria-describedby", "where-error")
    expect(page.locator("#where")).to_be_focused()
    expect(page.locator("#notice")).not_to_be_visible()
    expect(page.locator(".card")).to_have_count(0)
    session.expect_title("04.png")
    assert page.evaluate("document.querySelector('#query img').decode().then(() => true)")

    session.filter("year > 2010 and")
    expect(page.locator("#where-error")).to_contain_text("at character 16, but it ends there.")
    session.filter("year > 2010")
    session.expect_title("04.png")
    expect(page.locator(".card")).to_have_count(12)
    expect(page.locator("#where-error")).to_have_text("")
    assert page.locator("#where").get_attribute("aria-invalid") is None
    session.ignore("status of 422")
    session.close()


def test_other_errors_are_not_shown_at_the_filter(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url)
    session.page.fill("#where", WHERE)
    session.search_key("unknown")
    session.expect_state("error")
    expect(session.page.locator("#notice")).to_contain_text("The index has no item unknown.")
    expect(session.page.locator("#where-error")).to_have_text("")
    session.ignore("status of 404")
    session.close()


def test_address_holds_the_filter(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=04.png&k=12")
    page = session.page
    expect(page.locator(".card")).to_have_count(12)
    session.filter(WHERE)
    expect(page.locator(".card")).to_have_count(len(KEPT))
    link = str(page.locator(".card a").first.get_attribute("href"))
    assert parse_qs(link.removeprefix("#"))["where"] == [WHERE]
    session.filter("year == 2003")
    expect(page.locator(".card")).to_have_count(1)
    page.go_back()
    expect(page.locator("#where")).to_have_value(WHERE)
    expect(page.locator(".card")).to_have_count(len(KEPT))
    page.go_back()
    expect(page.locator("#where")).to_have_value("")
    expect(page.locator(".card")).to_have_count(12)
    page.go_forward()
    page.reload()
    expect(page.locator("#where")).to_have_value(WHERE)
    expect(page.locator(".card")).to_have_count(len(KEPT))
    session.close()


def test_filter_is_cleared_by_one_click(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=04.png&k=12")
    page = session.page
    clear = page.get_by_role("button", name="Clear the filter")
    expect(page.locator(".card")).to_have_count(12)
    expect(clear).not_to_be_visible()
    for where, count in ((WHERE, len(KEPT)), ("year > 2090", 0)):
        session.filter(where)
        expect(page.locator(".card")).to_have_count(count)
        clear.last.click()  # with nothing found, the button of the message
        expect(page.locator(".card")).to_have_count(12)
        expect(page.locator("#where")).to_have_value("")
        expect(page.locator("#where")).to_be_focused()
        assert "where" not in address_state(page)
        session.expect_title("04.png")
    session.close()


def test_too_few_items_are_announced(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=04.png&k=12")
    page = session.page
    summary, status = page.locator("#query .summary"), page.locator("#status")
    expect(summary).to_contain_text("12 nearest of 24 items, in")
    session.filter("year > 2000")
    expect(summary).to_contain_text("12 nearest that match the filter, of 24 items, in")
    expect(status).not_to_contain_text("No other item")
    session.filter(WHERE)
    expect(summary).to_contain_text("Only 7 of 24 items match the filter, in")
    expect(status).to_contain_text("7 results")
    expect(status).to_contain_text("No other item matches.")
    session.filter("year == 2003 or year == 2004")
    expect(summary).to_contain_text("Only 2 of 24 items match")
    page.locator("#filter button", has_text="odd").click()
    expect(summary).to_contain_text("Only 1 of 24 items has the label odd and matches the filter, in")
    expect(page.locator("#filter button")).to_have_text(["All 2", "even 1", "odd 1"])
    session.filter("year == 2004")
    expect(page.locator("#notice")).to_contain_text("No item with the label odd matches the filter.")
    expect(page.locator("#filter button")).to_have_text(["All", "odd"])
    page.locator("#filter button", has_text="All").click()
    expect(summary).to_contain_text("Only 1 of 24 items matches the filter, in")
    session.filter("year == 1999")
    expect(page.locator("#notice")).to_contain_text("No item matches the filter.")
    session.close()


def test_filter_works_by_keyboard(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=04.png")
    page, keyboard = session.page, session.page.keyboard
    session.expect_state("results")
    keyboard.press("f")
    assert session.focused_id() == "where"
    keyboard.type("key == '04.png' or title == 'f/?'")
    keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(1)
    assert session.focused_id() == "where"
    keyboard.press("Escape")
    assert session.focused_id() == ""
    expect(page.locator("#where")).to_have_value("key == '04.png' or title == 'f/?'")
    keyboard.press("f")
    keyboard.press("Tab")
    assert session.focused_id() == "clear-where"
    keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(24)
    for _ in range(2):
        keyboard.press("Tab")
    assert session.focused_id() == "toggle-where-help"
    keyboard.press("Enter")
    expect(page.locator("#where-help")).to_be_visible()
    expect(page.locator("#where-help tbody tr")).to_have_count(6)
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(page.locator("#where")).to_have_value("label ")
    assert session.focused_id() == "where"
    keyboard.press("Escape")
    keyboard.press("Escape")
    session.expect_state("start")
    expect(page.locator("#where")).to_have_value("")
    session.close()


def test_help_lists_columns_and_inserts_their_names(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=04.png")
    page = session.page
    expect(page.locator("#where")).to_have_attribute("placeholder", "For example: label == 'cat' and `odd name` > 20")
    toggle = page.get_by_role("button", name="How to filter")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#where-help")).not_to_be_visible()
    toggle.click()
    expect(toggle).to_have_attribute("aria-expanded", "true")
    rows = page.locator("#where-help tbody tr")
    expect(rows.locator("th")).to_have_text(["label", "key", "`odd name`", "taken", "title", "year"])
    expect(rows.locator("td:nth-child(2)")).to_have_text(["texts", "text", "number", "date", "text", "number"])
    values = rows.locator("td:nth-child(3)").all_text_contents()
    assert sorted(values[0].split(", ")) == ["'even'", "'odd'"]
    assert all(value.startswith("'2020-01-") and len(value) == 12 for value in values[3].split(", "))
    assert {value for value in values[5].split(", ") if 2000 <= int(value) < 2023} == set(values[5].split(", "))
    expect(page.locator("#where-help")).to_contain_text("not in (1, 2)")

    page.fill("#where", "not")
    page.get_by_role("button", name="Insert odd name into the filter").click()
    expect(page.locator("#where")).to_have_value("not `odd name` ")
    page.keyboard.type("== None")
    page.keyboard.press("Enter")
    expect(page.locator(".card")).to_have_count(2)
    for value in values[3].split(", ")[:2]:
        session.filter(f"taken == {value}")
        expect(page.locator(".card")).to_have_count(1)
    toggle.click()
    expect(page.locator("#where-help")).not_to_be_visible()
    session.close()


def test_start_shows_items_that_match(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url)
    page = session.page
    expect(page.locator(".card.sample")).to_have_count(12)
    session.filter("label == 'odd'")
    expect(page.locator(".card.sample .labels")).to_have_text(["odd"] * 12)
    expect(page.locator("#samples-title")).to_have_text("Or start with one of these items, which match the filter.")
    assert address_state(page) == {"where": ["label == 'odd'"]}
    session.filter("year < 2003")
    expect(page.locator("#samples-title")).to_have_text("Only 3 items match the filter.")
    expect(page.locator(".card.sample")).to_have_count(3)
    session.filter("year <")
    expect(page.locator("#where-error")).to_contain_text("at character 7")
    expect(page.locator(".card")).to_have_count(0)
    session.expect_state("start")
    page.go_back()
    expect(page.locator(".card.sample .labels")).to_have_text(["odd"] * 12)
    expect(page.locator("#where-error")).to_have_text("")
    page.locator(".card a").first.click()
    session.expect_state("results")
    expect(page.locator(".card .labels")).to_have_text(["odd"] * 12)
    session.ignore("status of 422")
    session.close()


def test_filter_before_the_service_answers_is_used(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/docs")
    page = session.page
    held: list[Route] = []
    page.route("**/api/v1/info", lambda route: held.append(route))  # noqa: PLW0108  # Playwright sets an attribute.
    page.goto(column_service.url)
    session.filter("year < 2003")
    session.search_key("04.png")
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    session.expect_title("04.png")
    expect(page.locator(".card")).to_have_count(3)
    session.close()


def test_columns_of_items_are_shown(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=01.png")
    page = session.page
    card = page.locator(".card", has_text="01.png")
    expect(card.locator(".brief")).to_have_text("odd name 1 · taken 2020-01-02 · title Title 1 · year 2001")
    expect(card.locator("dd").first).not_to_be_visible()
    card.locator("summary").click()
    expect(card.locator("dt")).to_have_text(["odd name", "taken", "title", "year"])
    expect(card.locator("dd")).to_have_text(["1", "2020-01-02", "Title 1", "2001"])
    expect(card.locator("dd").last).to_be_visible()
    session.expect_title("01.png")  # no search with the item
    expect(page.locator(".card", has_text="23.png").locator("details")).not_to_be_visible()
    page.locator(".brand").click()
    expect(page.locator(".card.sample .brief").first).to_contain_text("year 20")
    session.close()


def test_columns_and_filters_are_shown_as_text(browser: Browser, column_service: RunningService) -> None:
    session = PageSession(browser, column_service.url, "/#key=03.png")
    page = session.page
    expect(page.locator(".card .brief", has_text=NASTY)).to_have_count(1)
    session.filter(f"`{NASTY}` == 1")
    expect(page.locator("#where-error")).to_contain_text(f"The index has no column {NASTY}")
    session.filter(f"title == '{NASTY}'")
    expect(page.locator(".card dd", has_text=NASTY)).to_have_text(NASTY)
    assert page.locator("img[src=x]").count() == 0
    session.ignore("status of 422")
    session.close()


def test_index_without_columns_is_filtered_by_label_and_key(browser: Browser, tmp_path: Path) -> None:
    with serving(make_code_index(tmp_path / "i", 40), {"token": None}) as running:
        session = PageSession(browser, running.url, "/#key=item+7&k=12")
        page = session.page
        expect(page.locator(".card")).to_have_count(12)
        expect(page.locator(".card details").first).not_to_be_visible()
        page.locator("#toggle-where-help").click()
        expect(page.locator("#where-help tbody th")).to_have_text(["label", "key"])
        session.filter("label == 'odd' and key in ('item 1', 'item 2', 'item 3')")
        expect(page.locator(".card")).to_have_count(2)
        assert set(session.item_keys()) == {"item 1", "item 3"}
        expect(page.locator("#query .mosaic")).to_be_visible()
        session.ignore("status of 404")
        session.close()
