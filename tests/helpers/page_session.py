"""The page of a service in a browser, with a record of everything that goes wrong on it."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

TIMEOUT = 60_000  # milliseconds, for slow machines

expect.set_options(timeout=TIMEOUT)


class PageSession:
    """An open page; `problems` has messages of the console, errors, dialogs, and requests to other servers."""

    def __init__(self, browser: Browser, url: str, path: str = "/", *, width: int = 1280, **options: Any) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 800}, **options)
        self.page.set_default_timeout(TIMEOUT)
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        own = (url, "blob:")
        self.page.on("request", lambda request: None if request.url.startswith(own) else self.problems.append(request.url))
        self.page.goto(url + path)

    def upload(self, path: Path) -> None:
        self.page.set_input_files("#file", path)

    def search_key(self, key: str) -> None:
        self.page.fill("#key", key)
        self.page.press("#key", "Enter")

    def filter(self, where: str) -> None:
        self.page.fill("#where", where)
        self.page.press("#where", "Enter")

    def expect_state(self, state: str) -> None:
        expect(self.page.locator("body")).to_have_attribute("data-state", state)

    def expect_title(self, title: str) -> None:
        expect(self.page.locator("#title")).to_have_text(title)

    def item_keys(self) -> list[str]:
        return self.page.locator(".card .name").all_text_contents()

    def focused_key(self) -> str:
        return str(self.page.evaluate("document.activeElement.querySelector('.name')?.textContent ?? ''"))

    def focused_id(self) -> str:
        return str(self.page.evaluate("document.activeElement.id"))

    def ignore(self, text: str) -> None:
        """Forget problems with this text, such as the browser's own notes on refused requests."""
        self.problems = [problem for problem in self.problems if text not in problem]

    def close(self) -> None:
        """Check that the page fits the window and had no problems, and close it."""
        fits = self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        self.page.close()
        assert fits
        assert self.problems == []
