"""Several judges, or several readings of one judge, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.judging.judge import RubricJudge
from pytest_rubrics.judging.verdicts import Judgement, JudgingError, Verdict
from pytest_rubrics.tasks import Criterion, Task

Rule = Literal["majority", "unanimous", "any", "mean"]


def decide(votes: Sequence[float], weight: float, rule: Rule) -> float:
    """The value of a criterion from the votes of a panel.

    - ``majority``: hit if more than half say so. A tie counts against the model under test, so that an even panel never
      favours it: not hit where a hit rewards, hit where a hit penalises.
    - ``unanimous``: hit if all say so.
    - ``any``: hit if one says so.
    - ``mean``: the mean of the votes.

    >>> [decide([1, 0], weight, "majority") for weight in (5, -5)]
    [0.0, 1.0]
    """
    share = sum(votes) / len(votes)
    match rule:
        case "majority":
            return float(share > 0.5 or (share == 0.5 and weight < 0))
        case "unanimous":
            return float(share == 1)
        case "any":
            return float(share > 0)
        case "mean":
            return share


@dataclass(frozen=True, slots=True, repr=False)
class PanelJudge:
    """Asks every member about the same answer and decides each criterion.

    Attributes:
        members: The judges by name, in the order of the panel.
        rule: How a criterion is decided.
    """

    members: Mapping[str, RubricJudge]
    rule: Rule

    async def judge(
        self, task: Task, answer: str, repeat: int, turn: Turn, *, anew: bool, mend: bool = False
    ) -> Judgement:
        """The decided verdicts for one answer; the arguments are those of `RubricJudge.judge`.

        Raises:
            JudgingError: A member ended without all its verdicts. It is named; what there is, is kept.
        """

        async def ask(judge: RubricJudge) -> tuple[Judgement, JudgingError | None]:
            try:
                return await judge.judge(task, answer, repeat, turn, anew=anew, mend=mend), None
            except JudgingError as error:
                return error.partial, error

        asked = await asyncio.gather(*(ask(judge) for judge in self.members.values()))
        found = dict(zip(self.members, asked, strict=True))
        errors = {name: error for name, (_, error) in found.items() if error is not None}
        readings = {name: judgement for name, (judgement, _) in found.items()}
        judgement = self._together(task, readings, keep_open=bool(errors))
        if errors:
            text = "; ".join(f"member {name}: {error}" for name, error in errors.items())
            raise JudgingError(_gravest(list(errors.values())).reason, text, judgement)
        if not judgement.verdicts:
            raise JudgingError("judge_malformed", "no criterion has a verdict of every member", judgement)
        return judgement

    def _together(self, task: Task, readings: Mapping[str, Judgement], *, keep_open: bool) -> Judgement:
        """The verdicts of all members as those of the panel.

        Args:
            task: The task.
            readings: By member.
            keep_open: Whether criteria that a member left open are decided by the others: for a record only, never for
                a score.
        """
        given: dict[str, dict[str, Verdict]] = {criterion.id: {} for criterion in task.criteria}
        for name, judgement in readings.items():
            for verdict in judgement.verdicts:
                given[verdict.criterion.id][name] = verdict
        enough = 1 if keep_open else len(readings)
        return Judgement(
            verdicts=[self._verdict(one, given[one.id]) for one in task.criteria if len(given[one.id]) >= enough],
            missing=[one for one in task.criteria if len(given[one.id]) < len(readings)],
            replies=[reply for judgement in readings.values() for reply in judgement.replies],
            keys=[key for judgement in readings.values() for key in judgement.keys],
            averages=self.rule == "mean",
        )

    def _verdict(self, criterion: Criterion, given: Mapping[str, Verdict]) -> Verdict:
        known = [verdict.p for verdict in given.values() if verdict.p is not None]
        return Verdict(
            criterion,
            decide([verdict.value for verdict in given.values()], criterion.weight, self.rule),
            "\n".join(f"{name}: {one.justification}" for name, one in given.items() if one.justification),
            p=sum(known) / len(known) if len(known) == len(given) else None,
            members={name: verdict.value for name, verdict in given.items()},
        )


def _gravest(errors: Sequence[JudgingError]) -> JudgingError:
    """The error that the reason names: one that the next run may not meet, else malformed verdicts."""
    return next((error for error in errors if error.reason != "judge_malformed"), errors[0])
