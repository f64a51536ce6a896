"""Texts of models and data sets for a page: Markdown becomes a small, safe subset of HTML; nothing else is markup."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nh3

MOST = 400_000  # characters of one text that are shown; the records hold all of it

# Controls that reorder what stands around them, so that a text could be read as another one.
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")
# Noncharacters: no text needs them, and no Markdown syntax knows them.
_LESS, _BANG = "\ufdd0", "\ufdd1"
_OWN = re.compile(f"[{_LESS}{_BANG}]")

_TAGS = {"a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "strong", "sup", "ul"}
_TAGS |= {"table", "thead", "tbody", "tr", "th", "td", *(f"h{level}" for level in range(1, 7))}
_ATTRIBUTES = {"a": {"href"}, "td": {"align"}, "th": {"align"}, "ol": {"start"}}


def visible(text: str) -> str:
    r"""Write controls that reorder text as their code points.

    >>> visible("a\u202eb")
    'a⟨U+202E⟩b'
    """
    return _REORDERING.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text)


def shortened(text: str) -> tuple[str, int]:
    """What is shown of a text, and the number of characters left out."""
    return text[:MOST], max(0, len(text) - MOST)


def to_html(text: str) -> str:
    r"""Render GitHub's Markdown. HTML in it stays text; images become links, as nothing may be loaded.

    >>> to_html("*a* <script>")
    '<p><em>a</em> &lt;script&gt;</p>\n'
    """
    import cmarkgfm
    from cmarkgfm.cmark import Options

    # A "<" that the parser never sees cannot begin a tag, a comment or an autolink, in code neither.
    hidden = _OWN.sub("\ufffd", _encodable(text)).replace("<", _LESS).replace("![", f"{_BANG}[")
    html = cmarkgfm.github_flavored_markdown_to_html(hidden, Options.CMARK_OPT_HARDBREAKS)
    return _cleaner().clean(html).replace(_LESS, "&lt;").replace(_BANG, "!")


@cache
def _cleaner() -> nh3.Cleaner:
    import nh3

    return nh3.Cleaner(
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
