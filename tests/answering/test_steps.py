from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.answering.agent_prompts import LABELS
from pytest_rubrics.answering.shortening import CappedBytes, shorten
from pytest_rubrics.answering.steps import LEAST, Step, ToolCall, Trim, as_plain_text
from pytest_rubrics.answering.tools.tool import Observation
from pytest_rubrics.calls.reply import Reply

GAP = 50  # characters that the remark about a gap may have


def steps(outputs: Sequence[str], text: str = "Hm.") -> list[Step]:
    call = ToolCall("bash", '{"command": "ls"}', {"command": "ls"})
    return [Step(f"k{n}", Reply(), text, [call], [Observation(output)]) for n, output in enumerate(outputs)]


def observed(outputs: Sequence[str], trim: Trim | None = None) -> list[str]:
    messages = as_plain_text(steps(outputs), LABELS["en"], trim)
    return [message["content"].removeprefix("Observation: ") for message in messages[1::2]]


def test_steps_alternate_between_the_model_and_what_it_saw() -> None:
    messages = as_plain_text(steps(["one", "two"]), LABELS["en"])
    assert [message["role"] for message in messages] == ["assistant", "user"] * 2
    assert messages[0]["content"] == 'Hm.\nAction: bash\nAction Input: {"command": "ls"}'
    assert messages[1]["content"] == "Observation: one"


def test_the_newest_output_is_cut_last() -> None:
    old, middle, new = observed(["a" * 1000, "b" * 1000, "c" * 1000], Trim(0.5, 100))
    assert new == "c" * 1000
    assert LEAST < len(middle) < 600
    assert len(old) < LEAST + GAP


def test_what_the_model_wrote_is_cut_too() -> None:
    messages = as_plain_text(steps(["x"], text="y" * 5000), LABELS["en"], Trim(0.5, 300))
    assert len(messages[0]["content"]) < 300 + GAP


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.sampled_from([0.5, 0.25, 0.1, 0.02]))
def test_a_trimmed_history_keeps_about_its_share(lengths: list[int], share: float) -> None:
    texts = observed(["x" * length for length in lengths], Trim(share, 100))
    assert sum(map(len, texts)) <= share * sum(lengths) + len(lengths) * (LEAST + GAP) + GAP
    assert all(len(text) <= max(length, LEAST) + GAP for text, length in zip(texts, lengths, strict=True))


@given(st.text(max_size=500), st.integers(1, 300))
def test_a_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit - limit // 2])
        assert short.endswith(text[-(limit // 2) :] if limit > 1 else "\n")
        assert f"{len(text) - limit:,} characters" in short


@given(st.lists(st.binary(max_size=50), max_size=40), st.integers(2, 200))
def test_capped_bytes_hold_the_beginning_and_the_end(chunks: list[bytes], limit: int) -> None:
    chunks = [json.dumps(list(chunk)).encode() for chunk in chunks]
    capped, whole, half = CappedBytes(limit), b"".join(chunks), limit // 2
    for chunk in chunks:
        capped.add(chunk)
    if len(whole) <= 2 * half:
        assert capped.text() == whole.decode()
    else:
        left_out = f"\n[... {len(whole) - 2 * half:,} bytes left out ...]\n"
        assert capped.text() == whole[:half].decode() + left_out + whole[-half:].decode()
