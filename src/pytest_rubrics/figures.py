"""What summing up keeps of a grade: its numbers. Answers and justifications stay on disk."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_rubrics.grades import Grade, GradeId, State

NOT_A_NUMBER = "not_a_number"
"""Reason of a grade whose score is missing or not finite: it counts nowhere."""


class TagWeights(NamedTuple):
    """Weights of the criteria of one tag in one answer; the four are never negative.

    Attributes:
        rewards: Sum of the positive weights.
        hit: What was hit of it; a verdict between 0 and 1 counts in part.
        penalties: Sum of the negative weights, as a positive number.
        violated: What was hit of it.
    """

    rewards: float = 0.0
    hit: float = 0.0
    penalties: float = 0.0
    violated: float = 0.0

    def plus(self, weight: float, value: float) -> TagWeights:
        """With one more criterion."""
        rewards, hit, penalties, violated = self
        if weight > 0:
            return TagWeights(rewards + weight, hit + weight * value, penalties, violated)
        return TagWeights(rewards, hit, penalties - weight, violated - weight * value)


class Vote(NamedTuple):
    """A verdict of a panel, or one with a probability.

    Attributes:
        id, tag, weight: Of the criterion.
        value: The verdict, 0 to 1.
        p: Probability of a hit, or None.
        members: What each member said, 0 to 1, by its name; empty for one judge.
    """

    id: str
    tag: str | None
    weight: float
    value: float
    p: float | None
    members: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of one grade.

    Attributes:
        benchmark, task_id, key, subset, model, track, judge, repeat, state, reason: As in the grade.
        metric: Name of the score.
        score: The score; None when excluded.
        low: Lowest score that unjudged criteria allow; the score itself where all were judged.
        high: Highest one, likewise.
        passed: Whether the pass mark was reached; None without one and when excluded.
        tags: Weights by tag.
        tokens: Input and output tokens of the answer, then of the judge.
        cost_usd: Cost of the answer and of the judge; None where a price is unknown.
        spent_usd: What this run paid for it.
        served_judge: The model that the judge's endpoint said it was.
        votes: Verdicts in which more than a hit or a miss stands; empty for one judge without probabilities.
    """

    benchmark: str
    task_id: str
    key: str
    subset: str
    model: str
    track: str
    judge: str
    repeat: int
    state: State
    reason: str | None = None
    metric: str | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    passed: bool | None = None
    tags: Mapping[str, TagWeights] = field(default_factory=dict)
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)
    cost_usd: tuple[float | None, float | None] = (0.0, 0.0)
    spent_usd: float | None = 0.0
    served_judge: str | None = None
    votes: tuple[Vote, ...] = ()

    @property
    def id(self) -> GradeId:
        """What it is a grade of."""
        return GradeId(self.benchmark, self.task_id, self.model, self.judge, self.repeat)


def figures_of(grade: Grade) -> Figures:
    """The numbers of a grade; one whose score is no number is taken as excluded."""
    metric = next(iter(grade.metrics or {}), None)
    score = grade.score
    counts = grade.state != "excluded"
    is_broken = counts and not _is_number(score)
    if is_broken:
        score = None
    return Figures(
        benchmark=_shared(grade.benchmark),
        task_id=_shared(grade.task_id),
        key=_shared(grade.key),
        subset=_shared(grade.subset),
        model=_shared(grade.model),
        track=_shared(grade.track),
        judge=_shared(grade.judge),
        repeat=grade.repeat,
        state="excluded" if is_broken else grade.state,
        reason=NOT_A_NUMBER if is_broken else _shared(grade.reason),
        metric=_shared(metric),
        score=score if counts else None,
        low=_bound(grade, f"{metric}_low", score),
        high=_bound(grade, f"{metric}_high", score),
        passed=None if is_broken else grade.passed,
        tags=tag_weights(
            (verdict.get("tag"), verdict["weight"], verdict.get("value", verdict["hit"])) for verdict in grade.verdicts
        ),
        tokens=_tokens(grade.usage),
        cost_usd=(grade.cost_usd.get("answer"), grade.cost_usd.get("judge")),
        spent_usd=grade.spent_usd,
        served_judge=_shared(grade.served_model.get("judge")),
        votes=tuple(_vote(verdict) for verdict in grade.verdicts if "members" in verdict or "p" in verdict),
    )


def _vote(verdict: Mapping[str, Any]) -> Vote:
    return Vote(
        _shared(verdict["id"]),
        _shared(verdict.get("tag")),
        verdict["weight"],
        float(verdict.get("value", verdict["hit"])),
        verdict.get("p"),
        {_shared(name): float(value) for name, value in verdict.get("members", {}).items()},
    )


def tag_weights(criteria: Iterable[tuple[str | None, float, float]]) -> dict[str, TagWeights]:
    """Weights by tag, from tag, weight and verdict (0 to 1) of each criterion; those without a tag are left out."""
    sums: dict[str, TagWeights] = {}
    nothing = TagWeights()
    for tag, weight, value in criteria:
        if tag is not None:
            sums[_shared(tag)] = sums.get(tag, nothing).plus(weight, value)
    return sums


def _is_number(score: float | None) -> bool:
    return isinstance(score, int | float) and math.isfinite(score)


def _bound(grade: Grade, name: str, score: float | None) -> float | None:
    bound = (grade.metrics or {}).get(name, score)
    return bound if _is_number(bound) else score


def _tokens(usage: Mapping[str, Mapping[str, int]]) -> tuple[int, int, int, int]:
    answer, judge = usage.get("answer", {}), usage.get("judge", {})
    names = ("input_tokens", "output_tokens")
    first, second = (answer.get(name, 0) for name in names)
    third, fourth = (judge.get(name, 0) for name in names)
    return first, second, third, fourth


def _shared(text: Any) -> Any:
    """One object for equal texts: names stand in every one of many thousand records."""
    return sys.intern(text) if type(text) is str else text
