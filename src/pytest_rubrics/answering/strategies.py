"""How an agent asks its model for steps: with the provider's tool calls, or in plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pytest_rubrics.answering.agent_prompts import LABELS, plain_text_protocol
from pytest_rubrics.answering.answer import answer_text
from pytest_rubrics.answering.react import find_action, read_step
from pytest_rubrics.answering.steps import Step, ToolCall, as_plain_text, read_arguments
from pytest_rubrics.answering.tools.tool import Definition
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Message
from pytest_rubrics.tasks import Language

StrategyName = Literal["function_calling", "react"]


class Strategy(Protocol):
    """A way of asking for steps."""

    def protocol(self) -> str:
        """What the model is told about it."""

    def wire_tools(self) -> Sequence[Mapping[str, Any]] | None:
        """Tool definitions of the request."""

    def read(self, reply: Reply) -> tuple[str, Sequence[ToolCall]]:
        """Text and calls of a reply; without a call the text is the report."""

    def read_report(self, reply: Reply) -> str:
        """The report out of the last reply, to which no tools were offered; empty if it calls some all the same."""

    def history(self, steps: Sequence[Step]) -> list[Message]:
        """The steps so far, as messages."""


def strategy(name: StrategyName, tools: Sequence[Definition], language: Language) -> Strategy:
    """The strategy of a name."""
    return FunctionCalling(tools) if name == "function_calling" else ReAct(tools, language)


@dataclass(frozen=True, slots=True)
class FunctionCalling:
    """Tool calls in OpenAI's shape, which LiteLLM translates."""

    tools: Sequence[Definition]

    def protocol(self) -> str:
        """Nothing: the provider tells the model."""
        return ""

    def wire_tools(self) -> Sequence[Mapping[str, Any]] | None:
        """Tool definitions in OpenAI's shape."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in self.tools
        ] or None

    def read(self, reply: Reply) -> tuple[str, Sequence[ToolCall]]:
        """Text and tool calls."""
        return answer_text(reply.content or ""), [_tool_call(call) for call in reply.tool_calls]

    def read_report(self, reply: Reply) -> str:
        """The text; what stands beside a call, be it written out, is no report."""
        text, calls = self.read(reply)
        return "" if calls or find_action(text, self.tools) else text

    def history(self, steps: Sequence[Step]) -> list[Message]:
        """Assistant messages with their calls, and one tool message for each."""
        messages: list[Message] = []
        for step in steps:
            calls = [{"id": f"call_{n}", **call.wire} for n, call in enumerate(step.calls)]
            said: dict[str, Any] = {"role": "assistant", "content": step.text or None, "tool_calls": calls}
            if step.reply.reasoning:  # some reasoning models insist on getting it back beside their calls
                said["reasoning_content"] = step.reply.reasoning
            messages.append(said)
            for call, observation in zip(calls, step.observations, strict=True):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": observation.text})
        return messages


@dataclass(frozen=True, slots=True)
class ReAct:
    """Thought, action and observation in plain text, for models without tool calls."""

    tools: Sequence[Definition]
    language: Language

    def protocol(self) -> str:
        """The form of a step, and the tools."""
        return plain_text_protocol(self.language, self.tools)

    def wire_tools(self) -> Sequence[Mapping[str, Any]] | None:
        """None."""
        return None

    def read(self, reply: Reply) -> tuple[str, Sequence[ToolCall]]:
        """Text and the one action."""
        return read_step(answer_text(reply.content or ""), self.tools, self.language)

    def read_report(self, reply: Reply) -> str:
        """The text, with or without its label."""
        text, calls = self.read(reply)
        return "" if any(call.name for call in calls) else text

    def history(self, steps: Sequence[Step]) -> list[Message]:
        """Assistant and user messages in turn."""
        return as_plain_text(steps, LABELS[self.language])


def _tool_call(wire: Mapping[str, Any]) -> ToolCall:
    function = wire.get("function") or {}
    name, text = str(function.get("name") or ""), function.get("arguments") or ""
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    arguments, fault = read_arguments(text)
    # Servers refuse a history with names or arguments that cannot be; the model learns from the observation.
    sendable = {
        **function,
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown",
        "arguments": "{}" if arguments is None else text.strip() or "{}",
    }
    given = {key: value for key, value in wire.items() if value is not None and key != "index"}
    return ToolCall(name, text, arguments, fault, {**given, "type": "function", "function": sendable})
