"""What a page consists of, as a browser reads it."""

from __future__ import annotations

from html.parser import HTMLParser


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
