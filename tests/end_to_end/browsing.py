"""A page in Debian's Chromium, driven by Playwright."""

import shutil
import time

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
GIVE_UP = 60_000
IN_A_BROWSER = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: install Debian's package chromium"),
    pytest.mark.xdist_group("page"),
]


class Opened:
    """A page that collects its console errors and requests."""

    def __init__(self, context, address):
        self.page, self.address = context.new_page(), address
        self.page.set_default_timeout(GIVE_UP)
        self.errors, self.hosts = [], set()
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url))

    def open(self, link):
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#{link}")
        self.page.wait_for_selector("nav [aria-selected=true]")
        return self.page

    def is_well(self):
        """No error, no other host, nothing of the models' or people's texts has run."""
        own = (self.address, "data:", "blob:", "about:")
        assert [url for url in self.hosts if not url.startswith(own)] == []
        assert self.errors == []
        assert self.page.evaluate("window.hacked") is None


def saved(page, name, within="body"):
    """What a button makes one save."""
    with page.expect_download() as coming:
        page.locator(within).get_by_role("button", name=name, exact=True).first.click()
    return coming.value.path().read_bytes()


def until(page, expression, arg=None):
    """Wait for something to be true; Playwright's own way evaluates in the page, which its policy forbids."""
    end = time.monotonic() + GIVE_UP / 1000
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)


def fits(page):
    """Nothing is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
