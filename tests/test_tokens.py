from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.tokens import count_tokens, exceeds, split

CHARACTERS = st.one_of(st.sampled_from("ab c.\n!?。；法律😀\r\t'sSxX1230"), st.characters())
TEXTS = st.text(CHARACTERS, max_size=200)


def test_counts_need_no_network() -> None:
    code = """
import socket, sys
def refuse(*arguments, **settings):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from pytest_rubrics.tokens import count_tokens
print(count_tokens("tiktoken is great!"))
assert "litellm" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert (run.stdout.strip(), run.stderr) == ("6", "")


def test_chinese_counts_for_what_it_is() -> None:
    assert count_tokens("法律" * 30_000) > 40_000
    assert count_tokens("legal " * 10_000) < 11_000


@given(TEXTS, st.integers(0, 60))
def test_exceeding_is_counting(text: str, limit: int) -> None:
    assert exceeds(text, limit) == (count_tokens(text) > limit)


@given(TEXTS, st.integers(1, 20))
def test_chunks_are_the_text_again_and_none_is_too_long(text: str, size: int) -> None:
    chunks = split(text, size)
    assert "".join(chunks) == text
    assert all(count_tokens(chunk) <= size or len(chunk) == 1 for chunk in chunks)


def test_a_text_is_cut_between_paragraphs() -> None:
    paragraph = "One sentence. Another one follows it.\n\n"
    chunks = split(paragraph * 10, 2 * count_tokens(paragraph) + 3)
    assert chunks == [paragraph * 2] * 5


@pytest.mark.parametrize(
    "sentence", ["This is one sentence of several words. ", "这是由若干词语组成的一个句子。", "A line of a list\n"]
)
def test_a_paragraph_that_is_too_long_is_cut_between_sentences(sentence: str) -> None:
    chunks = split(sentence * 12, 3 * count_tokens(sentence))
    assert len(chunks) < 12
    assert all(chunk.endswith(sentence) for chunk in chunks)


def test_a_sentence_that_is_too_long_is_cut_anywhere() -> None:
    chunks = split("法" * 1_000, 100)
    assert "".join(chunks) == "法" * 1_000
    assert max(map(count_tokens, chunks)) <= 100


def test_an_empty_text_is_one_chunk() -> None:
    assert split("", 10) == [""]
