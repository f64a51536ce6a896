from __future__ import annotations

import pytest

from pytest_rubrics.reporting.rich_text import MOST, shortened, to_html, visible
from tests.support.elements import Elements
from tests.support.runs import HOSTILE


def test_markdown_is_rendered() -> None:
    source = "# Title\n\n*a* **b** ~~c~~\n\n1. one\n2. two\n\n| x | y |\n|---|--:|\n| 1 | 2 |\n\n```py\nx < y\n```"
    tags = [tag for tag, _ in Elements(to_html(source)).found]
    for tag in ("h1", "em", "strong", "del", "ol", "li", "table", "th", "td", "pre", "code"):
        assert tag in tags
    assert "x < y" in Elements(to_html(source)).text


def test_strong_beside_chinese_punctuation_is_rendered() -> None:
    assert "<strong>「解除合同」</strong>" in to_html("应当**「解除合同」**并赔偿")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_becomes_an_element(text: str) -> None:
    for source in (text, f"- {text}", f"```\n{text}\n```", f"| a |\n|---|\n| {text} |", f"[{text}]({text})"):
        for tag, attributes in Elements(to_html(source)).found:
            assert tag not in {"script", "img", "svg", "iframe", "style", "input"}
            assert not [name for name in attributes if name.startswith("on") or name in {"style", "src", "id", "class"}]
            assert not (attributes.get("href") or "").startswith(("javascript", "data"))


def test_html_stays_text() -> None:
    text = "<b>bold</b> <script>alert(1)</script>"
    assert Elements(to_html(text)).text.strip() == text


def test_an_image_becomes_a_link() -> None:
    assert [tag for tag, _ in Elements(to_html("![alt](https://example.org/a.png)")).found] == ["p", "a"]


def test_an_exclamation_mark_in_code_stays() -> None:
    assert "![x]" in Elements(to_html("`![x]`")).text


def test_a_lone_surrogate_is_no_error() -> None:
    assert "?" in to_html("\ud800")


def test_controls_that_reorder_are_shown() -> None:
    assert visible("a\u202eb\u2066c") == "a⟨U+202E⟩b⟨U+2066⟩c"


def test_a_huge_text_is_cut_and_the_rest_counted() -> None:
    text, cut = shortened("x" * (MOST + 7))
    assert (len(text), cut) == (MOST, 7)
