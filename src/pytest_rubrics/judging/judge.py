"""A judge: how a rubric is split into calls, and what becomes of criteria that stay unjudged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_rubrics import tokens
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.judging.asking import Asked, Round
from pytest_rubrics.judging.criterion import CriterionForm
from pytest_rubrics.judging.logprob import hit_probability
from pytest_rubrics.judging.reply import CriterionReading
from pytest_rubrics.judging.sheet import SheetForm
from pytest_rubrics.judging.verdicts import Judgement, JudgingError, Verdict
from pytest_rubrics.tasks import Criterion, Language, Task

# With these the judge is not to blame and the next run may get the verdict: no bound stands in for it.
_NEVER_BOUNDED = {"authentication", "budget", "cache_miss", "credit", "interrupted"}


@dataclass(slots=True)
class _Part:
    """What one call or group of calls gave."""

    verdicts: list[Verdict]
    missing: Sequence[Criterion]
    asked: Asked[Any]


@dataclass(frozen=True, slots=True, repr=False)
class RubricJudge:
    """Marks every criterion of a rubric, side by side where they are asked apart.

    Attributes:
        sheet: Asks for a group of criteria in one call.
        single: Asks for one criterion in one call.
        group_size: Criteria in one call; None for all, 1 for each alone.
        context_limit: Tokens of an answer above which it is read in parts.
        on_missing: Whether a grade with unjudged criteria is excluded, or scored with bounds.
        language: Language of the prompts; the task's if None.
    """

    sheet: SheetForm
    single: CriterionForm
    group_size: int | None
    context_limit: int
    on_missing: Literal["exclude", "bound"] = "exclude"
    language: Language | None = None

    async def judge(
        self, task: Task, answer: str, repeat: int, turn: Turn, *, anew: bool, mend: bool = False
    ) -> Judgement:
        """The verdicts for one answer.

        Args:
            task: The task.
            answer: What was answered.
            repeat: Index of the repeat.
            turn: Place in the queue for slots.
            anew: Whether stored replies of former runs do not count.
            mend: Whether questions whose stored replies are all malformed are asked anew.

        Raises:
            JudgingError: Criteria stayed unjudged; the verdicts that exist and all replies are on it.
        """
        round_ = Round(repeat, turn, anew, mend)
        task = replace(task, language=self.language or task.language)
        chunks = await self._chunks(answer)
        if len(chunks) > 1:
            work = [self._in_parts(task, chunks, criterion, round_) for criterion in task.criteria]
        elif self.group_size == 1:
            work = [self._alone(task, answer, criterion, round_) for criterion in task.criteria]
        else:
            size = self.group_size or len(task.criteria)
            groups = [task.criteria[start : start + size] for start in range(0, len(task.criteria), size)]
            work = [self._together(task, answer, group, round_) for group in groups]
        return self._judgement(await asyncio.gather(*work))

    async def _chunks(self, answer: str) -> list[str]:
        # A thread costs more than the look that suffices for most answers.
        fits = not tokens.may_exceed(answer, self.context_limit)
        if fits or not await asyncio.to_thread(tokens.exceeds, answer, self.context_limit):
            return [answer]
        return await asyncio.to_thread(tokens.split, answer, self.single.chunk_size)

    async def _together(self, task: Task, answer: str, group: Sequence[Criterion], round_: Round) -> _Part:
        asked = await self.sheet.ask(task, answer, group, round_)
        readings = asked.reading or {}
        verdicts = [
            Verdict(criterion, float(readings[criterion.id].hit), readings[criterion.id].justification)
            for criterion in group
            if criterion.id in readings
        ]
        return _Part(verdicts, () if readings else group, asked)

    async def _alone(self, task: Task, answer: str, criterion: Criterion, round_: Round) -> _Part:
        return _of_one(criterion, await self.single.ask(task, answer, criterion, round_))

    async def _in_parts(self, task: Task, chunks: Sequence[str], criterion: Criterion, round_: Round) -> _Part:
        return _of_one(criterion, await self.single.ask_in_parts(task, chunks, criterion, round_))

    def _judgement(self, parts: Sequence[_Part]) -> Judgement:
        missing = [criterion for part in parts for criterion in part.missing]
        judgement = Judgement(
            verdicts=[verdict for part in parts for verdict in part.verdicts],
            missing=missing,
            replies=[reply for part in parts for reply in part.asked.replies],
            keys=[key for part in parts for key in part.asked.keys],
        )
        errors = [part.asked.error for part in parts if part.missing and part.asked.error is not None]
        if not missing:
            return judgement
        final = [error for error in errors if error.reason in _NEVER_BOUNDED]
        if self.on_missing == "bound" and judgement.verdicts and not final:
            return judgement
        if errors:
            worst = (final or errors)[0]
            raise JudgingError(worst.reason, f"judge {worst}", judgement)
        bad = next(part for part in parts if part.missing)
        ids = ", ".join(criterion.id for criterion in missing[:10])
        message = f"the judge's reply on {ids} was malformed {bad.asked.malformed} times; last: {bad.asked.fault}"
        raise JudgingError("judge_malformed", message, judgement)


def _of_one(criterion: Criterion, asked: Asked[CriterionReading]) -> _Part:
    reading = asked.reading
    if reading is None:
        return _Part([], (criterion,), asked)
    p = hit_probability(asked.replies[-1].logprobs, reading.score == 1)  # the last reply is the one that was read
    return _Part([Verdict(criterion, reading.score, reading.reasoning, p)], (), asked)
