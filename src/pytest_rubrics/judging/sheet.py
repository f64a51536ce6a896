"""Judging all criteria of a task, or a group of them, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.judging.asking import Asked, Asker, Round
from pytest_rubrics.judging.prompts import marker_for, render, render_criteria
from pytest_rubrics.judging.reply import Reading, read_sheet
from pytest_rubrics.judging.schemas import sheet_schema
from pytest_rubrics.tasks import Criterion, Language, Task

STATUSES: Mapping[Language, tuple[str, str]] = {"en": ("yes", "no"), "zh": ("是", "否")}


@dataclass(frozen=True, slots=True, repr=False)
class SheetForm:
    """Marks several criteria at once.

    Attributes:
        asker: The judge's endpoint.
        templates: Prompt for each language of a task.
        show_weights: Whether the judge sees the weights.
        fixed_order: Whether the schema fixes the id of each element.
        max_justification: Most characters of a justification, or None.
    """

    asker: Asker
    templates: Mapping[Language, str]
    show_weights: bool
    fixed_order: bool
    max_justification: int | None = None

    async def ask(
        self, task: Task, answer: str, criteria: Sequence[Criterion], round_: Round
    ) -> Asked[dict[str, Reading]]:
        """The readings by criterion id, or None where no reply could be read."""
        ids = [criterion.id for criterion in criteria]
        schema = sheet_schema(
            ids, STATUSES[task.language], fixed_order=self.fixed_order, longest=self.max_justification
        )
        return await self.asker.ask(
            lambda: self.messages(task, answer, criteria),
            schema,
            lambda text: read_sheet(text, ids),
            task.language,
            round_,
        )

    def messages(self, task: Task, answer: str, criteria: Sequence[Criterion]) -> list[Mapping[str, Any]]:
        """What the judge is asked."""
        values = {
            "question": task.prompt,
            "answer": answer,
            "criteria": render_criteria(criteria, show_weights=self.show_weights),
            "count": str(len(criteria)),
            "first_id": criteria[0].id,
            "marker": marker_for(task.prompt, answer),
        }
        return [{"role": "user", "content": render(self.templates[task.language], values)}]
