"""Counting tokens, and cutting long texts at natural bounds."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

# Long runs without blanks make a byte-pair encoder slow, so texts are counted piece by piece.
PIECE = 20_000

_PARAGRAPHS = re.compile(r"(?<=\n)\s*\n")
_SENTENCES = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|(?<=\n)")


def exceeds(text: str, limit: int) -> bool:
    """Whether a text has more tokens than a limit."""
    return may_exceed(text, limit) and count_tokens(text) > limit


def may_exceed(text: str, limit: int) -> bool:
    """Whether it takes an encoder to tell: a token of a byte-level one is at least one byte."""
    return len(text.encode("utf-8", "surrogatepass")) > limit


def count_tokens(text: str) -> int:
    """Tokens of a text in the ``cl100k_base`` encoding; other encodings differ a little."""
    encode = _encoder()
    return sum(encode(text[start : start + PIECE]) for start in range(0, len(text), PIECE))


@cache
def _encoder() -> Callable[[str], int]:
    import tiktoken

    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    # Where LiteLLM keeps the file; without it the encoder would ask the network.
    folder = Path(next(iter(spec.submodule_search_locations))) / "litellm_core_utils" / "tokenizers"
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        encoding = tiktoken.get_encoding("cl100k_base")
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
    return lambda text: len(encoding.encode_ordinary(text))


def split(text: str, size: int) -> list[str]:
    """Cut a text into chunks of at most ``size`` tokens, at paragraph bounds, else at sentence bounds, else anywhere.

    Joined together the chunks are the text again. A single character that has more tokens is a chunk of its own.
    """
    pieces = deque(_pieces(text, size))
    chunks = []
    while pieces:
        current, room = [pieces.popleft()], size
        room -= count_tokens(current[0])
        while pieces and (tokens := count_tokens(pieces[0])) <= room:
            room -= tokens
            current.append(pieces.popleft())
        # Texts that are joined have a few tokens more, at times, than the sum of their own.
        while len(current) > 1 and exceeds("".join(current), size):
            pieces.appendleft(current.pop())
        chunks.append("".join(current))
    return chunks or [text]


def _pieces(text: str, size: int) -> Iterator[str]:
    """Paragraphs; the sentences of a paragraph that is too long; parts of a sentence that is too long."""
    for paragraph in _cut(_PARAGRAPHS, text):
        if not exceeds(paragraph, size):
            yield paragraph
            continue
        for sentence in _cut(_SENTENCES, paragraph):
            yield from [sentence] if not exceeds(sentence, size) else _halves(sentence, size)


def _cut(bounds: re.Pattern[str], text: str) -> Iterator[str]:
    start = 0
    for bound in bounds.finditer(text):
        if bound.end() > start:
            yield text[start : bound.end()]
            start = bound.end()
    if start < len(text):
        yield text[start:]


def _halves(text: str, size: int) -> Iterator[str]:
    if len(text) > 1 and exceeds(text, size):
        middle = len(text) // 2
        yield from _halves(text[:middle], size)
        yield from _halves(text[middle:], size)
    else:
        yield text
