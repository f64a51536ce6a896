"""Judging one criterion in one call, and reports too long for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_rubrics import tokens
from pytest_rubrics.judging.asking import Asked, Asker, Round
from pytest_rubrics.judging.prompts import marker_for, render, render_criterion
from pytest_rubrics.judging.reply import CriterionReading, read_criterion, read_evidence
from pytest_rubrics.judging.schemas import criterion_schema, evidence_schema
from pytest_rubrics.tasks import Criterion, Language, Task

_PARTLY: Mapping[Language, str] = {
    "en": '\n- There is a third value, "Partially Satisfied" (score 0.5), for what is there in essential parts only.',
    "zh": '\n- 另有第三种取值 "Partially Satisfied"（score 为 0.5），用于只具备主要部分的情形。',
}
_NOTHING: Mapping[Language, str] = {"en": "(no passage was found in any part)", "zh": "（各部分均未找到相关段落）"}
_LEFT_OUT: Mapping[Language, str] = {"en": "[further passages of this part are left out]", "zh": "［此部分其余摘录略］"}
_PART: Mapping[Language, str] = {"en": "Part {number}:", "zh": "第 {number} 部分："}


@dataclass(frozen=True, slots=True, repr=False)
class CriterionForm:
    """Marks criteria one by one. The task and the report come first in the prompt, so that prompt caches work.

    Attributes:
        asker: The judge's endpoint.
        templates: Prompt for each language of a task, by kind: ``criterion``, ``evidence`` and ``synthesis``.
        show_weights: Whether the judge sees the weights.
        ternary: Whether there is a third value.
        max_justification: Most characters of a justification, or None.
        chunk_size: Tokens of one part of a long report.
    """

    asker: Asker
    templates: Mapping[str, Mapping[Language, str]]
    show_weights: bool
    ternary: bool = False
    max_justification: int | None = None
    chunk_size: int = 100_000

    async def ask(self, task: Task, answer: str, criterion: Criterion, round_: Round) -> Asked[CriterionReading]:
        """The reading of one criterion, or None where no reply could be read."""
        return await self._verdict("criterion", self.show_weights, task, answer, criterion, round_)

    async def ask_in_parts(
        self, task: Task, parts: Sequence[str], criterion: Criterion, round_: Round
    ) -> Asked[CriterionReading]:
        """The reading of one criterion of a long report: evidence from each part, then a verdict on the evidence."""
        found = await asyncio.gather(
            *(self._evidence(task, part, number, len(parts), criterion, round_) for number, part in enumerate(parts, 1))
        )
        asked: Asked[CriterionReading] = Asked()
        for one in found:
            asked.add(one)
        if any(one.reading is None for one in found):
            return asked
        evidence = await asyncio.to_thread(self._gathered, [one.reading or [] for one in found], task.language)
        # The weight says nothing about the evidence, and the passages alone should decide.
        verdict = await self._verdict("synthesis", False, task, evidence, criterion, round_, parts=str(len(parts)))
        asked.add(verdict)
        asked.reading = verdict.reading
        return asked

    def messages(
        self, kind: str, show_weight: bool, task: Task, answer: str, criterion: Criterion, **more: str
    ) -> list[Mapping[str, Any]]:
        """What the judge is asked about one criterion."""
        values = {
            "question": task.prompt,
            "answer": answer,
            "criteria": render_criterion(criterion, show_weight),
            "weight": f"{criterion.weight:+g}",
            "tag": criterion.tag or "",
            "scale": _PARTLY[task.language] if self.ternary else "",
            "marker": marker_for(task.prompt, answer),
            **more,
        }
        return [{"role": "user", "content": render(self.templates[kind][task.language], values)}]

    async def _verdict(
        self, kind: str, show_weight: bool, task: Task, answer: str, criterion: Criterion, round_: Round, **more: str
    ) -> Asked[CriterionReading]:
        return await self.asker.ask(
            lambda: self.messages(kind, show_weight, task, answer, criterion, **more),
            criterion_schema(ternary=self.ternary, longest=self.max_justification),
            lambda text: read_criterion(text, ternary=self.ternary),
            task.language,
            round_,
        )

    async def _evidence(
        self, task: Task, part: str, number: int, count: int, criterion: Criterion, round_: Round
    ) -> Asked[list[str]]:
        def messages() -> list[Mapping[str, Any]]:
            return self.messages("evidence", False, task, part, criterion, part=str(number), parts=str(count))

        return await self.asker.ask(messages, evidence_schema(), read_evidence, task.language, round_)

    def _gathered(self, found: Sequence[Sequence[str]], language: Language) -> str:
        """The passages of all parts, each once; where they are too long, each part has an equal share."""
        seen: set[str] = set()
        share = self.chunk_size // len(found)
        blocks = []
        for number, passages in enumerate(found, start=1):
            fresh = [passage for passage in dict.fromkeys(passages) if passage not in seen]
            seen.update(fresh)
            if fresh:
                text = "\n".join(f"> {passage}" for passage in fresh)
                if tokens.exceeds(text, share):
                    text = f"{tokens.split(text, share)[0].rstrip()}\n{_LEFT_OUT[language]}"
                blocks.append(f"{_PART[language].format(number=number)}\n{text}")
        return "\n\n".join(blocks) or _NOTHING[language]
