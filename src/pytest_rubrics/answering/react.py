"""Reading a step in plain text: thought, action and its input, or the final report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pytest_rubrics.answering.agent_prompts import NO_ACTION
from pytest_rubrics.answering.steps import ToolCall, read_arguments
from pytest_rubrics.answering.tools.tool import Definition
from pytest_rubrics.tasks import Language

_BEGIN = r"^[ \t>*_#]*(?:"
_END = r")[ \t*_]*[:：][ \t*_]*"
_FLAGS = re.MULTILINE | re.IGNORECASE
_THOUGHT = re.compile(rf"\A\s*{_BEGIN}thought|思考{_END}", _FLAGS)
_ACTION = re.compile(rf"{_BEGIN}action|行动{_END}(?P<rest>.*)$", _FLAGS)
_INPUT = re.compile(rf"{_BEGIN}(?:action[ _]?)?(?:input|arguments)|行动输入|参数{_END}", _FLAGS)
_NEXT = re.compile(rf"{_BEGIN}observation|thought|action|观察|思考|行动{_END}", _FLAGS)
_REPORT = re.compile(
    rf"{_BEGIN}final[ _](?:report|answer)|最终报告|最终答案{_END}|^[ \t]*[#*]+[ \t]*(?:final report|最终报告)[ \t*]*$",
    _FLAGS,
)
_NAME = re.compile(r"[`\"'*\[(]*([\w.-]+)")
_FENCE = re.compile(r"\A\s*```\w*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)


def read_step(text: str, tools: Sequence[Definition], language: Language) -> tuple[str, list[ToolCall]]:
    """What a reply says.

    The first of an action and a final report counts. What follows an action, such as an observation that the model made
    up, is dropped. A text that is neither, and does not begin with a thought, is the report.

    Args:
        text: The reply, without any reasoning block.
        tools: The tools.
        language: Of what the model is told about faults.

    Returns:
        The text before the action and the one call; or the report and no call.
    """
    report = _REPORT.search(text)
    action = find_action(text[: report.start()] if report else text, tools)
    if action is not None:
        before, call = action
        return before, [call]
    if report is not None:
        return text[report.end() :].strip(), []
    if _THOUGHT.match(text):
        return text, [ToolCall("", "", None, NO_ACTION[language])]
    return text, []


def find_action(text: str, offered: Sequence[Definition]) -> tuple[str, ToolCall] | None:
    """The first action of a text and what stands before it."""
    tools = {tool.name: tool for tool in offered}
    for match in _ACTION.finditer(text):
        rest, after = match["rest"].strip(), text[match.end() :].lstrip()
        name, given = _NAME.match(rest), _INPUT.match(after)
        # A report may have a line "Action: ..." too; a call names a tool, or has an input.
        if name is None or (name[1] not in tools and given is None):
            continue
        written = after[given.end() :] if given else f"{rest[name.end() :]}\n{after}"
        return text[: match.start()].strip(), _call(name[1], written, tools.get(name[1]))
    return None


def _call(name: str, written: str, tool: Definition | None) -> ToolCall:
    text = _arguments_text(written)
    arguments, fault = read_arguments(text)
    only = _only_text_parameter(tool)
    if arguments is None and text and only is not None:
        arguments, fault = {only: text}, ""
    return ToolCall(name, text, arguments, fault)


def _arguments_text(written: str) -> str:
    """The arguments out of what follows their label: the first JSON object, else all up to the next label."""
    fence = _FENCE.match(written)
    body = fence[1] if fence else written
    start = body.find("{")
    if start >= 0 and not body[:start].strip(" \t\r\n`*(["):
        try:
            value: Any = json.JSONDecoder(strict=False).raw_decode(body[start:])[0]
            return json.dumps(value, ensure_ascii=False)
        except ValueError:
            pass
    following = None if fence else _NEXT.search(body)
    return (body[: following.start()] if following else body).strip().strip("`").strip()


def _only_text_parameter(tool: Definition | None) -> str | None:
    """The name of a tool's one parameter, where it has one and takes text: models often leave the JSON away."""
    properties = tool.parameters.get("properties", {}) if tool else {}
    names = [name for name, schema in properties.items() if schema.get("type") == "string"]
    return names[0] if len(properties) == len(names) == 1 else None
