"""Texts that are no proper Unicode."""

from __future__ import annotations


def whole_characters(text: str) -> str:
    r"""The text with lone surrogates replaced: JSON and PDF can hold such halves of a character, UTF-8 cannot.

    >>> whole_characters("a\ud83d \ud83d\ude00") == "a\ufffd \U0001f600"
    True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
