"""A real browser for the tests of pages; they are skipped, with the reason, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def chromium() -> str:
    """Path of Chromium; skips the test where it or Playwright is missing."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None or find_spec("playwright") is None:
        pytest.skip("needs Chromium and the package playwright")
    return path


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def tab(running: Browser, address: str, **settings: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page that has drawn itself, and what went wrong in it: errors, and anything asked of the network."""
    context = running.new_context(**{"locale": "en-US", "viewport": {"width": 1400, "height": 900}, **settings})
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("request", lambda request: wrong.append(request.url) if _is_foreign(request.url, address) else None)
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    try:
        page.goto(address)
        page.wait_for_selector("footer")
        yield page, wrong
    finally:
        context.close()


def accessibility_faults(page: Page) -> list[str]:
    """What axe finds that is serious or critical."""
    spec = find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package axe-playwright-python")
    page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:200]}"
        for fault in found["violations"]
        if fault["impact"] in {"serious", "critical"}
        for node in fault["nodes"]
    ]


def _is_foreign(url: str, address: str) -> bool:
    folder = address.partition("#")[0].rpartition("/")[0]
    return not url.startswith((folder, "data:", "blob:"))
