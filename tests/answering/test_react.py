from __future__ import annotations

import pytest

from pytest_rubrics.answering.react import read_step
from pytest_rubrics.answering.steps import ToolCall
from pytest_rubrics.answering.tools.tool import Definition

BASH = Definition("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}})
ADD = Definition("add", "", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})


def read(text: str) -> tuple[str, list[ToolCall]]:
    return read_step(text, [BASH, ADD], "en")


@pytest.mark.parametrize(
    "text",
    [
        'Thought: look\nAction: bash\nAction Input: {"command": "ls"}',
        'Thought: look\n\nAction: bash\n\nAction Input: {"command": "ls"}\n',
        'Thought: look\nAction: bash\nAction Input: {"command": "ls"}\nObservation: a\nThought: done\nFinal Report: x',
        'Thought: look\n**Action:** bash\n**Action Input:** {"command": "ls"}',
        'Thought: look\n**Action**: `bash`\n**Action Input**: `{"command": "ls"}`',
        'Thought: look\nAction: bash\nAction Input:\n```json\n{"command": "ls"}\n```\nThen I will see.',
        'Thought: look\nAction: bash\nAction Input: ```{"command": "ls"}```',
        'Thought: look\nACTION: bash\naction_input: {"command": "ls"}',
        'Thought: look\nAction: bash\nInput: {"command": "ls"}',
        'Thought: look\nAction: bash\nArguments: {"command": "ls"}',
        'Thought: look\nAction: bash\n{"command": "ls"}',
        'Thought: look\nAction: bash {"command": "ls"}',
        'Thought: look\nAction: bash({"command": "ls"})',
        'Thought: look\nAction: "bash"\nAction Input: {"command": "ls"}',
        "Thought: look\nAction: bash\nAction Input: ls",
        "Thought: look\nAction: bash\nAction Input: ls\nObservation: a b",
        "Thought: look\nAction: bash\nAction Input: `ls`",
        "Thought: look\nAction: bash\nAction Input:\n```bash\nls\n```",
        '思考：look\n行动：bash\n行动输入：{"command": "ls"}',
        '思考: look\n行动: bash\n行动输入: {"command": "ls"}\n观察：无',
        '> Thought: look\n> Action: bash\n> Action Input: {"command": "ls"}',
    ],
)
def test_an_action_is_read(text: str) -> None:
    before, (call,) = read(text)
    assert (call.name, call.arguments, call.fault) == ("bash", {"command": "ls"}, "")
    assert "look" in before
    assert "Action" not in before


def test_json_over_several_lines_is_read() -> None:
    _, (call,) = read('Action: bash\nAction Input: {\n  "command": "cat <<E\nAction: none\nE"\n}\nObservation: x')
    assert call.arguments == {"command": "cat <<E\nAction: none\nE"}


def test_a_command_of_several_lines_without_json_is_read() -> None:
    _, (call,) = read("Action: bash\nAction Input: cd x\nls -la\n\nObservation: nothing")
    assert call.arguments == {"command": "cd x\nls -la"}


def test_arguments_that_cannot_be_read_are_a_fault() -> None:
    _, (call,) = read("Action: add\nAction Input: 2 and 3")
    assert call.arguments is None
    assert "not valid JSON" in call.fault
    assert "2 and 3" in call.fault


def test_an_unknown_tool_with_an_input_is_a_call() -> None:
    _, (call,) = read('Action: browse\nAction Input: {"url": "x"}')
    assert (call.name, call.arguments) == ("browse", {"url": "x"})


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("Thought: done\nFinal Report:\n# Title\n\nText.", "# Title\n\nText."),
        ("Thought: done\nFinal Answer: 42", "42"),
        ("**Final Report:**\n\nText.", "Text."),
        ("Thought: done\n## Final Report\n\nText.", "Text."),
        ("思考：好\n最终报告：\n正文。", "正文。"),
        ("# Title\n\nA report without any label.", "# Title\n\nA report without any label."),
        ("Final Report:\nAction: governments should act.\nThe end.", "Action: governments should act.\nThe end."),
        ("# Plan\n\nAction: Governments should act now.\n", "# Plan\n\nAction: Governments should act now.\n"),
        ("Final Report:", ""),
        ("", ""),
    ],
)
def test_a_report_is_read(text: str, report: str) -> None:
    assert read(text) == (report, [])


def test_a_thought_without_an_action_is_a_fault() -> None:
    _, (call,) = read("Thought: I will search the web.")
    assert (call.name, call.arguments) == ("", None)
    assert call.fault.startswith("No action was found")
