"""Makes the two pictures of the README from reports/example. Needs the extra ``browser``, and Chromium."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import browser, tab  # noqa: E402

ADDRESS = (ROOT / "reports" / "example" / "report.html").as_uri()
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1200, "height": 900}


def main() -> None:
    """Write docs/images/overview.png and docs/images/task.png."""
    with browser() as running, tab(running, ADDRESS, viewport=SIZE) as (page, _):
        page.screenshot(path=IMAGES / "overview.png")
        page.goto(f"{ADDRESS}#/tasks?subset=global_law")
        page.click("table.tasks tbody a")
        page.wait_for_selector(".criteria")
        page.evaluate("document.querySelector('.sides').scrollIntoView(); scrollBy(0, -70)")
        page.screenshot(path=IMAGES / "task.png")


if __name__ == "__main__":
    main()
