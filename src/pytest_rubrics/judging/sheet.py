"""Judging all criteria of a task in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.judging.asking import Asker
from pytest_rubrics.judging.prompts import marker_for, render, render_criteria
from pytest_rubrics.judging.reply import Reading, read_sheet
from pytest_rubrics.judging.verdicts import Judgement, JudgingError, Verdict
from pytest_rubrics.tasks import Language, Task

STATUSES: Mapping[Language, tuple[str, str]] = {"en": ("yes", "no"), "zh": ("是", "否")}


@dataclass(frozen=True, slots=True)
class SheetJudge:
    """Marks a whole rubric at once.

    Attributes:
        asker: The judge's endpoint.
        templates: Prompt for each language of a task.
        statuses: Words for hit and not hit, for each language of a task.
        show_weights: Whether the judge sees the weights.
        fixed_order: Whether the schema fixes the id of each element, which small local models need and some hosted
            ones refuse.
        max_justification: Most characters of a justification, or None.
    """

    asker: Asker
    templates: Mapping[Language, str]
    statuses: Mapping[Language, tuple[str, str]]
    show_weights: bool
    fixed_order: bool
    max_justification: int | None = None

    async def judge(self, task: Task, answer: str, repeat: int, turn: Turn, *, anew: bool) -> Judgement:
        """The verdicts for one answer.

        Raises:
            CallError: A call failed.
            JudgingError: No reply could be read.
        """
        ids = [criterion.id for criterion in task.criteria]
        asked = await self.asker.ask(
            self.messages(task, answer),
            sheet_schema(ids, self.statuses[task.language], self.fixed_order, self.max_justification),
            lambda text: read_sheet(text, ids),
            language=task.language,
            repeat=repeat,
            turn=turn,
            anew=anew,
        )
        readings: Mapping[str, Reading] = asked.reading or {}
        verdicts = [
            Verdict(criterion, readings[criterion.id].hit, readings[criterion.id].justification)
            for criterion in task.criteria
            if criterion.id in readings
        ]
        judgement = Judgement(verdicts, asked.replies, asked.keys)
        if asked.reading is None:
            times = len(asked.replies)
            raise JudgingError(
                "judge_malformed", f"the judge's reply was malformed {times} times; last: {asked.fault}", judgement
            )
        return judgement

    def messages(self, task: Task, answer: str) -> list[Mapping[str, Any]]:
        """What the judge is asked."""
        text = render(
            self.templates[task.language],
            {
                "question": task.prompt,
                "answer": answer,
                "criteria": render_criteria(task.criteria, show_weights=self.show_weights),
                "count": str(len(task.criteria)),
                "first_id": task.criteria[0].id,
                "marker": marker_for(task.prompt, answer),
            },
        )
        return [{"role": "user", "content": text}]


def sheet_schema(
    ids: Sequence[str], statuses: Sequence[str], fixed_order: bool, max_justification: int | None
) -> Mapping[str, Any]:
    """JSON schema of a sheet: an object, as OpenAI's strict mode wants it, around the array of verdicts.

    With ``fixed_order`` every element has its own schema with its id as a constant; there is no ``items: false``
    after it, which llama.cpp refuses.
    """
    justification: dict[str, Any] = {"type": "string"}
    if max_justification is not None:
        justification["maxLength"] = max_justification

    def element(rubric_id: Mapping[str, Any]) -> Mapping[str, Any]:
        properties = {
            "rubric_id": rubric_id,
            "status": {"type": "string", "enum": list(statuses)},
            "justification": justification,
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    array: dict[str, Any] = {"type": "array", "minItems": len(ids), "maxItems": len(ids)}
    if fixed_order:
        array["prefixItems"] = [element({"const": id_}) for id_ in ids]
    else:
        array["items"] = element({"type": "string", "enum": list(ids)})
    return {
        "type": "object",
        "properties": {"verdicts": array},
        "required": ["verdicts"],
        "additionalProperties": False,
    }
