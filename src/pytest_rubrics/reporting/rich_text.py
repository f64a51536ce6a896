"""Texts of models and data sets for a page: Markdown becomes a small, safe subset of HTML; nothing else is markup."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import comrak
    import nh3

MOST = 400_000  # characters of one text that are shown; the records hold all of it

# Controls that reorder what stands around them, so that a text could be read as another one.
_REORDERING = {control: f"⟨U+{control:04X}⟩" for control in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
# Stands for the "!" of an image, so that the parser sees a link; a noncharacter, which no text needs.
_BANG = "\ufdd0"

_TAGS = {"a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "strong", "sup", "ul"}
_TAGS |= {"table", "thead", "tbody", "tr", "th", "td", *(f"h{level}" for level in range(1, 7))}
_ATTRIBUTES = {"*": set(), "a": {"href"}, "td": {"align"}, "th": {"align"}, "ol": {"start"}}


def visible(text: str) -> str:
    r"""Write controls that reorder text as their code points.

    >>> visible("a\u202eb")
    'a⟨U+202E⟩b'
    """
    return text.translate(_REORDERING) if any(chr(control) in text for control in _REORDERING) else text


def shortened(text: str) -> tuple[str, int]:
    """What is shown of a text, and the number of characters left out."""
    return text[:MOST], max(0, len(text) - MOST)


def to_html(text: str) -> str:
    r"""Render GitHub's Markdown. HTML in it stays text; images become links, as nothing may be loaded.

    >>> to_html("*a* <script>")
    '<p><em>a</em> &lt;script&gt;</p>\n'
    """
    import comrak

    extensions, rendering = _options()
    plain = _encodable(text).replace(_BANG, "\ufffd").replace("![", f"{_BANG}[")
    html = comrak.render_markdown(plain, extension_options=extensions, render_options=rendering)
    return _cleaner().clean(html).replace(_BANG, "!")


@cache
def _options() -> tuple[comrak.ExtensionOptions, comrak.RenderOptions]:
    import comrak

    extensions, rendering = comrak.ExtensionOptions(), comrak.RenderOptions()
    extensions.table = extensions.strikethrough = extensions.autolink = extensions.tasklist = True
    extensions.cjk_friendly_emphasis = True
    rendering.escape = rendering.hardbreaks = True
    return extensions, rendering


@cache
def _cleaner() -> nh3.Cleaner:
    import nh3

    return nh3.Cleaner(
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
