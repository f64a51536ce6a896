"""What a model produced for a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.calls.errors import CallError, Reason
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.characters import whole_characters

_REASONING = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or why there is none.

    Attributes:
        text: What is judged; None where the model failed.
        failure: Reason code of a failure that is the model's own, or None.
        error: What was wrong, where the reason does not say it all.
        truncated: Whether the text was cut by the token limit.
        finish_reason: Why the model stopped.
        replies: Paid replies that led to it.
        keys: Their cache keys.
        trajectory: What an agent did, step by step, as plain JSON; empty for others.
    """

    text: str | None
    failure: str | None = None
    error: str | None = None
    truncated: bool = False
    finish_reason: str | None = None
    replies: Sequence[Reply] = ()
    keys: Sequence[str] = ()
    trajectory: Sequence[Mapping[str, Any]] = ()


class AnsweringError(CallError):
    """Answering ended without an answer after some of its calls had been paid; they are kept.

    Attributes:
        partial: What there is; its text is None.
    """

    def __init__(self, reason: Reason, message: str, partial: Answer) -> None:
        super().__init__(reason, message)
        self.partial = partial


def read_answer(reply: Reply, key: str) -> Answer:
    """Decide what a chat model's reply is: an answer, a cut-off one, or a failure of the model."""
    text = answer_text(reply.content or "")
    failure = None
    if reply.finish_reason == "content_filter":
        failure = "filtered"
    elif not text.strip():
        failure = "empty_length" if reply.finish_reason == "length" else "empty"
    return Answer(
        text=None if failure else text,
        failure=failure,
        truncated=failure is None and reply.finish_reason == "length",
        finish_reason=reply.finish_reason,
        replies=(reply,),
        keys=(key,),
    )


def answer_text(text: str) -> str:
    """What is judged of a text: no reasoning block, and no halves of characters, which no judge can be sent."""
    return whole_characters(without_reasoning(text))


def without_reasoning(text: str) -> str:
    """Drop a reasoning block at the start, which some servers leave in the content, at times without its opening tag.

    >>> without_reasoning("<think>hm</think>Yes."), without_reasoning("hm</think>Yes.")
    ('Yes.', 'Yes.')
    """
    if text.lstrip()[:1] == "<":
        return _REASONING.sub("", text, count=1).lstrip()
    before, closing, after = text.partition("</think>")
    return after.lstrip() if closing and "<think>" not in before else text
