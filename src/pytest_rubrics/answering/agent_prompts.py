"""What agents are told, in English and in Chinese."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_rubrics.answering.tools.tool import Definition
from pytest_rubrics.tasks import Language

Limit = Literal["step_limit", "time_limit", "context_length"]


@dataclass(frozen=True, slots=True)
class Labels:
    """Words that mark the parts of a step in plain text."""

    thought: str
    action: str
    arguments: str
    observation: str
    report: str


LABELS: Mapping[Language, Labels] = {
    "en": Labels("Thought", "Action", "Action Input", "Observation", "Final Report"),
    "zh": Labels("思考", "行动", "行动输入", "观察", "最终报告"),
}

_SYSTEM: Mapping[Language, str] = {
    "en": """\
You are a research agent. Work out the user's task with your tools: collect what is needed, check what matters against \
a second source, and calculate rather than estimate. Nobody can answer questions, so settle open points yourself and \
say how you settled them.

As long as you need tools, call them. When you need none any more, write the report: a reply without a tool call ends \
your work and is the only text that is read. The report must be complete in itself, in the language of the task, with \
the sources of its facts, and it must say openly what could not be found out.""",
    "zh": """\
你是一名研究智能体。请借助工具完成用户的任务：收集所需的资料，对关键内容用第二个来源核对，能计算的就计算，不要估计。\
没有人能回答你的提问，遇到不明确之处请自行判断，并说明判断的依据。

需要工具时就调用工具。不再需要时，请撰写报告：不含工具调用的回复会结束你的工作，也是唯一会被阅读的文字。报告须自成一体，\
使用任务所用的语言，注明事实的来源，并如实说明未能查明的内容。""",
}

_PLAIN_TEXT: Mapping[Language, str] = {
    "en": """\
Work in steps. A step has exactly this form:

Thought: what you know and what you need next
Action: the name of one tool
Action Input: its arguments as one JSON object

Stop there. The next message brings the result as an observation; never write one yourself. When you need no more \
tools, write instead:

Final Report:
the complete report

The tools:
""",
    "zh": """\
请一步一步地工作。每一步严格采用以下格式：

思考：已经知道什么，接下来需要什么
行动：一个工具的名称
行动输入：该工具的参数，写成一个 JSON 对象

写到这里就停下。下一条消息会给出结果，即“观察”；切勿自己编写观察。不再需要工具时，改写：

最终报告：
完整的报告

可用的工具：
""",
}
_ARGUMENTS: Mapping[Language, str] = {"en": "Arguments (JSON Schema)", "zh": "参数（JSON Schema）"}

NO_ACTION: Mapping[Language, str] = {
    "en": "No action was found in your reply. Write an Action and its Action Input, or the Final Report.",
    "zh": "你的回复中没有找到行动。请写出“行动”和“行动输入”，或者写出“最终报告”。",
}

_FINAL: Mapping[Language, str] = {
    "en": "{limit} Tools can no longer be called. Write the complete final report on the task now, from what has been "
    "gathered above, and say openly what is still missing. Reply with the report only.",
    "zh": "{limit}现在不能再调用工具。请根据以上已收集的内容，立即写出这项任务的完整最终报告，"
    "并如实说明尚缺的内容。只回复报告本身。",
}
_LIMITS: Mapping[Language, Mapping[Limit, str]] = {
    "en": {
        "step_limit": "All steps are used up.",
        "time_limit": "The time is up.",
        "context_length": "The conversation has become too long, so earlier results may be shortened.",
    },
    "zh": {
        "step_limit": "步数已经用完。",
        "time_limit": "时间已到。",
        "context_length": "对话过长，较早的结果可能已被缩短。",
    },
}


def system_prompt(language: Language, own: str | None, of_task: str | None) -> str:
    """The system message: a text of the user's or ours, then what the task itself asks for."""
    parts = [own if own is not None else _SYSTEM[language], (of_task or "").strip()]
    return "\n\n".join(part for part in parts if part)


def plain_text_protocol(language: Language, tools: Sequence[Definition]) -> str:
    """How a model without tool calls asks for tools, and which there are."""
    lines = []
    for tool in tools:
        schema = json.dumps(tool.parameters, ensure_ascii=False)
        lines.append(f"- {tool.name}: {tool.description}\n  {_ARGUMENTS[language]}: {schema}")
    return _PLAIN_TEXT[language] + "\n".join(lines)


def final_request(language: Language, limit: Limit) -> str:
    """Ask for the report when a limit has ended the work."""
    return (
        _FINAL[language].format(limit=_LIMITS[language][limit] + (" " if language == "en" else "")).replace("  ", " ")
    )
