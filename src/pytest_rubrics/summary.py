"""Sums up grades: counts, means with intervals, tokens and cost, per model and per subset. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.grades import Grade
from pytest_rubrics.statistics import intervals

# Where a subset's tasks stand: benchmark, model, judge.
Group = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What summing up needs to know of a task.

    Attributes:
        cluster: Tasks that share it are not independent.
        track: ``global`` or ``cn`` where the benchmark has tracks, else empty: tracks are never pooled.
        bounds: Lowest and highest possible score, or None where it has no bounds.
    """

    cluster: str = ""
    track: str = ""
    bounds: tuple[float, float] | None = None


def summarise(grades: Iterable[Grade], facts: Mapping[tuple[str, str], TaskFacts]) -> list[dict[str, Any]]:
    """One part for each benchmark x model x judge, with its subsets and tracks.

    Args:
        grades: The last grade of every id.
        facts: Of each task, by (benchmark, task id).
    """
    groups: dict[Group, list[Grade]] = defaultdict(list)
    for grade in grades:
        groups[grade.benchmark, grade.model, grade.judge].append(grade)
    return [_part(group, members, facts) for group, members in groups.items()]


def _part(group: Group, grades: Sequence[Grade], facts: Mapping[tuple[str, str], TaskFacts]) -> dict[str, Any]:
    benchmark, model, judge = group
    subsets: dict[str, list[Grade]] = defaultdict(list)
    tracks: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        subsets[grade.subset].append(grade)
        tracks[_facts(grade, facts).track].append(grade)
    return {
        "benchmark": benchmark,
        "model": model,
        "judge": judge,
        "track": grades[0].track,
        **numbers(grades, facts),
        "reasons": _reasons(grades),
        "tracks": {name: numbers(members, facts) for name, members in tracks.items() if name},
        "subsets": {name: numbers(members, facts) for name, members in subsets.items()},
    }


def numbers(grades: Sequence[Grade], facts: Mapping[tuple[str, str], TaskFacts]) -> dict[str, Any]:
    """The figures of some grades.

    Means are over tasks: with repeats a task's score is the mean over its graded repeats, its pass their share.
    """
    states = [grade.state for grade in grades]
    graded = [grade for grade in grades if grade.state != "excluded"]
    by_task: dict[str, list[Grade]] = defaultdict(list)
    for grade in graded:
        by_task[grade.task_id].append(grade)
    clusters = [_facts(members[0], facts).cluster or task_id for task_id, members in by_task.items()]
    scores = [_mean([grade.score or 0.0 for grade in members]) for members in by_task.values()]
    passes = [_mean([float(bool(g.passed)) for g in members]) for members in by_task.values()]
    has_mark = any(grade.passed is not None for grade in graded)
    return {
        "tasks": len({grade.task_id for grade in grades}),
        "scored": states.count("scored"),
        "failed": states.count("failed"),
        "excluded": states.count("excluded"),
        "coverage": len(graded) / len(grades) if grades else None,
        "metric": next((name for grade in graded for name in grade.metrics or {}), None),
        "mean": _estimate(scores, clusters, _facts(grades[0], facts).bounds),
        "pass_rate": _estimate(passes, clusters, (0.0, 1.0)) if has_mark else None,
        "tokens": _tokens(grades),
        "cost_usd": {part: _sum([grade.cost_usd.get(part) for grade in grades]) for part in ("answer", "judge")},
        "spent_usd": _sum([grade.spent_usd for grade in grades]),
    }


def _estimate(
    values: Sequence[float], clusters: Sequence[str], bounds: tuple[float, float] | None
) -> dict[str, Any] | None:
    if not values:
        return None
    estimate = intervals.mean(values, clusters=clusters, bounds=bounds)
    ci95 = None if estimate.low is None else [estimate.low, estimate.high]
    return {"value": estimate.value, "ci95": ci95}


def _facts(grade: Grade, facts: Mapping[tuple[str, str], TaskFacts]) -> TaskFacts:
    return facts.get((grade.benchmark, grade.task_id), TaskFacts())


def _reasons(grades: Sequence[Grade]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for grade in grades:
        if grade.reason:
            counts[f"{grade.state}: {grade.reason}"] += 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _tokens(grades: Sequence[Grade]) -> dict[str, dict[str, int]]:
    return {
        part: {
            name: sum(grade.usage.get(part, {}).get(name, 0) for grade in grades)
            for name in ("input_tokens", "output_tokens")
        }
        for part in ("answer", "judge")
    }


def _sum(values: Sequence[float | None]) -> float | None:
    """A sum; unknown as soon as one value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
