"""Scores by kind of criterion: the tags of $OneMillion-Bench, the axes of ResearchRubrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pytest_rubrics.facts import TaskFacts
from pytest_rubrics.figures import Figures, TagWeights

DEFINITION = (
    "Our own, as none is published: in each task the share of the tag's weight that was hit (positive weights, "
    "hit_rate) or avoided (negative weights, avoidance_rate), both together in score; then the mean over tasks. A "
    "failed answer counts 0 in all three."
)


class TagScore(NamedTuple):
    """What an answer, or a task over its repeats, achieved on the criteria of one tag.

    Attributes:
        score: Share of the weight that was hit, if positive, or avoided, if negative; 0 to 1.
        hit_rate: Share of the positive weight that was hit; None where there is none.
        avoidance_rate: Share of the negative weight that was avoided; None where there is none.
        weight_ratio: Weights hit over positive weights, S / P; None where no weight is positive.
    """

    score: float
    hit_rate: float | None
    avoidance_rate: float | None
    weight_ratio: float | None


def tag_scores(facts: TaskFacts, graded: Sequence[Figures]) -> dict[str, TagScore]:
    """The scores of one task by tag: the mean over its graded repeats."""
    if len(graded) == 1:
        return _of_one(facts, graded[0])
    by_tag: dict[str, list[TagScore]] = defaultdict(list)
    for figures in graded:
        for tag, score in _of_one(facts, figures).items():
            by_tag[tag].append(score)
    return {tag: _mean(scores) for tag, scores in by_tag.items()}


def _of_one(facts: TaskFacts, figures: Figures) -> dict[str, TagScore]:
    if figures.state == "failed":
        return {tag: _score(weights, failed=True) for tag, weights in facts.tags.items()}
    return {tag: _score(weights) for tag, weights in figures.tags.items()}


def _score(weights: TagWeights, *, failed: bool = False) -> TagScore:
    rewards, hit, penalties, violated = weights
    if failed:
        return TagScore(0.0, 0.0 if rewards else None, 0.0 if penalties else None, 0.0 if rewards else None)
    return TagScore(
        (hit + penalties - violated) / (rewards + penalties),
        hit / rewards if rewards else None,
        1.0 - violated / penalties if penalties else None,
        (hit - violated) / rewards if rewards else None,
    )


def _mean(scores: Sequence[TagScore]) -> TagScore:
    def over_repeats(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    score, *others = (over_repeats(column) for column in zip(*scores, strict=True))
    return TagScore(score or 0.0, *others)
