"""What an agent did, for reading afterwards: plain JSON of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pytest_rubrics.answering.shortening import shorten
from pytest_rubrics.answering.steps import Step
from pytest_rubrics.calls.reply import Reply

MOST = 20_000  # characters of one text


def trajectory(
    steps: Sequence[Step],
    replies: Sequence[Reply],
    keys: Sequence[str],
    report: str | None,
    failure: str | None,
    ended_by: str,
) -> list[dict[str, Any]]:
    """One entry for each step with tool calls, and a last one for the end.

    Args:
        steps: The steps.
        replies: All replies; those after the steps' belong to the end.
        keys: Their keys.
        report: The report, or None.
        failure: Reason code of the model's failure, or None.
        ended_by: ``report``, the limit that asked for the report, or the reason code of an error.
    """
    entries = [{"step": number, **_step(step)} for number, step in enumerate(steps, start=1)]
    last = replies[-1] if len(replies) > len(steps) else None
    end: dict[str, Any] = {"ended_by": ended_by, "failure": failure, "report": report and shorten(report, MOST)}
    if last is not None:
        end |= _call(keys[-1], last) | {"text": shorten(last.content or "", MOST) if report is None else None}
    return [*entries, end]


def _step(step: Step) -> dict[str, Any]:
    calls = [
        {
            "tool": call.name,
            "arguments": shorten(call.text, MOST),
            "result": shorten(observation.text, MOST),
            "is_error": observation.is_error,
            "seconds": round(observation.seconds, 3),
        }
        for call, observation in zip(step.calls, step.observations, strict=True)
    ]
    return {"text": shorten(step.text, MOST), **_call(step.key, step.reply), "calls": calls}


def _call(key: str, reply: Reply) -> dict[str, Any]:
    return {
        "key": key,
        "reasoning": reply.reasoning and shorten(reply.reasoning, MOST),
        "finish_reason": reply.finish_reason,
        "served_model": reply.served_model,
        "usage": asdict(reply.usage),
        "cost_usd": reply.cost_usd,
        "seconds": round(reply.seconds, 3),
        "at": reply.at,
    }
