"""What summing up needs to know of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_rubrics.figures import TagWeights, tag_weights
from pytest_rubrics.tasks import Task

TOPIC_SEPARATOR = " / "


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What summing up needs to know of a task.

    Attributes:
        cluster: Tasks that share it are not independent; a task without one stands alone.
        track: ``global`` or ``cn`` where the benchmark has tracks, else empty: tracks are never pooled.
        domain: What the macro mean counts alike: the group ``domain``, else the subset.
        groups: Fields to report by: those of the task, its language, and its topics as ``topic_1``, ``topic_2``, ...
        clip: Whether scores lie between 0 and 1.
        pass_at: Pass mark, or None.
        lowest: Lowest possible score.
        highest: Highest possible score.
        tags: Weights of its criteria by tag.
        value: Economic value as currency and amount, or None.
    """

    cluster: str = ""
    track: str = ""
    domain: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    clip: bool = False
    pass_at: float | None = None
    lowest: float = 0.0
    highest: float = 1.0
    tags: Mapping[str, TagWeights] = field(default_factory=dict)
    value: tuple[str, float] | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Range that the metric has for every task, or None."""
        return (0.0, 1.0) if self.clip else None


Facts: TypeAlias = Mapping[tuple[str, str], TaskFacts]
"""Facts of tasks by (benchmark, task id)."""


def facts_of(tasks: Iterable[Task], *, clip: bool, pass_at: float | None = None) -> dict[tuple[str, str], TaskFacts]:
    """Facts of the tasks of one benchmark.

    Args:
        tasks: The tasks.
        clip: Whether its metric is limited to 0..1.
        pass_at: Its pass mark, or None.
    """
    return {(task.benchmark, task.id): _facts(task, clip, pass_at) for task in tasks}


def _facts(task: Task, clip: bool, pass_at: float | None) -> TaskFacts:
    weights = [criterion.weight for criterion in task.criteria]
    penalties = sum(weight for weight in weights if weight < 0)
    return TaskFacts(
        cluster=task.cluster,
        track=task.groups.get("track", ""),
        domain=task.groups.get("domain") or task.subset,
        groups={**task.groups, "language": task.language, **_topics(task.topics)},
        clip=clip,
        pass_at=pass_at,
        lowest=0.0 if clip else penalties / (sum(weights) - penalties),
        highest=1.0,
        tags=tag_weights((criterion.tag, criterion.weight, 0.0) for criterion in task.criteria),
        value=task.value,
    )


def _topics(topics: tuple[str, ...]) -> dict[str, str]:
    """Each level with those above it: the same word may stand below several topics."""
    return {f"topic_{n}": TOPIC_SEPARATOR.join(topics[:n]) for n in range(1, len(topics) + 1)}
