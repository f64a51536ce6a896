"""The steps of an agent run, and their rendering as plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_rubrics.answering.agent_prompts import Labels
from pytest_rubrics.answering.shortening import shorten
from pytest_rubrics.answering.tools.tool import Observation
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Message

LEAST = 200  # characters that are always kept of a tool's output


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model asked for.

    Attributes:
        name: Name of the tool; empty where none could be read.
        text: The arguments as the model wrote them.
        arguments: The arguments; None where they could not be read.
        fault: What was wrong with the call, for the model.
        wire: The call as it came, for strategies that send it back.
    """

    name: str
    text: str
    arguments: Mapping[str, Any] | None
    fault: str = ""
    wire: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One reply that called tools, and what came of it.

    Attributes:
        key: Key of the request.
        reply: The reply.
        text: What stood beside the calls.
        calls: The calls.
        observations: One for each call.
    """

    key: str
    reply: Reply
    text: str
    calls: Sequence[ToolCall]
    observations: Sequence[Observation]

    @property
    def seconds(self) -> float:
        """Time of the model and of the tools, without any waiting for a slot."""
        return self.reply.seconds + sum(observation.seconds for observation in self.observations)


@dataclass(frozen=True, slots=True)
class Trim:
    """How much of a history is kept.

    Attributes:
        share: Share of all characters of tool output; the newest output goes first.
        text: Most characters of what the model wrote in a step.
    """

    share: float
    text: int


def read_arguments(text: str) -> tuple[Mapping[str, Any] | None, str]:
    """Arguments of a call, or None and what is wrong with them."""
    try:
        arguments = json.loads(text, strict=False) if text.strip() else {}
    except ValueError as error:
        return None, f"The arguments are not valid JSON ({error}): {shorten(text, 500)}"
    if not isinstance(arguments, dict):
        return None, f"The arguments must be one JSON object: {shorten(text, 500)}"
    return arguments, ""


def as_plain_text(steps: Sequence[Step], labels: Labels, trim: Trim | None = None) -> list[Message]:
    """The steps as an exchange of plain texts, which every model can read, also without tool definitions."""
    observed = _observed(steps, trim.share if trim else None)
    messages: list[Message] = []
    for step, texts in zip(steps, observed, strict=True):
        said = [step.text.strip()]
        for call in step.calls:
            if call.name:
                said.append(f"{labels.action}: {call.name}\n{labels.arguments}: {call.text.strip() or '{}'}")
        content = "\n".join(part for part in said if part)
        if trim:
            content = shorten(content, trim.text)
        messages.append({"role": "assistant", "content": content})
        messages.append({"role": "user", "content": "\n\n".join(f"{labels.observation}: {text}" for text in texts)})
    return messages


def _observed(steps: Sequence[Step], share: float | None) -> list[list[str]]:
    """The outputs of each step, cut to a share of all characters; the newest are cut last."""
    texts = [[observation.text for observation in step.observations] for step in steps]
    if share is None:
        return texts
    left = int(share * sum(len(text) for step in texts for text in step))
    for step in reversed(texts):
        for index in reversed(range(len(step))):
            step[index] = shorten(step[index], max(LEAST, left))
            left = max(0, left - len(step[index]))
    return texts
