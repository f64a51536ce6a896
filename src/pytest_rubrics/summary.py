"""Sums up grades: counts, means with intervals, tokens and cost, per model and per slice. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from pytest_rubrics.economics import PARTIAL_CREDIT, economic_value
from pytest_rubrics.estimates import estimate
from pytest_rubrics.facts import Facts
from pytest_rubrics.figures import Figures
from pytest_rubrics.judge_figures import judge_figures
from pytest_rubrics.repeats_summary import repeats_summary
from pytest_rubrics.statistics.intervals import exclusion_bounds
from pytest_rubrics.tag_scores import DEFINITION, TagScore
from pytest_rubrics.task_results import TaskResult, task_results

Results: TypeAlias = Sequence[TaskResult]
PartName: TypeAlias = tuple[str, str, str]
"""Benchmark, model, judge."""


def results_by_part(figures: Iterable[Figures], facts: Facts) -> dict[PartName, list[TaskResult]]:
    """The tasks of each benchmark x model x judge.

    Args:
        figures: Of the last grade of every id.
        facts: Of the tasks.
    """
    parts: dict[PartName, list[Figures]] = defaultdict(list)
    for each in figures:
        parts[each.benchmark, each.model, each.judge].append(each)
    return {name: task_results(members, facts) for name, members in parts.items()}


def summary_part(name: PartName, results: Results) -> dict[str, Any]:
    """The summary of one benchmark x model x judge, with its tracks, subsets, groups and tags."""
    benchmark, model, judge = name
    tracks = _split(results, lambda result: result.facts.track)
    subsets = _split(results, lambda result: result.subset)
    has_values = any(result.facts.value for result in results)
    return {
        "benchmark": benchmark,
        "model": model,
        "judge": judge,
        "track": results[0].grades[0].track,
        **numbers(results),
        "reasons": _reasons(results),
        "tracks": {
            track: {**numbers(members), **(_slices(members, topics=False) if len(tracks) > 1 else {})}
            for track, members in tracks.items()
        },
        "subsets": {subset: numbers(members) for subset, members in subsets.items()},
        **_slices(results, topics=True),
        **judge_figures(results),
        "definitions": {"tags": DEFINITION, **({"partial_credit": PARTIAL_CREDIT} if has_values else {})},
    }


def numbers(results: Results) -> dict[str, Any]:
    """All figures of some tasks.

    Means are over tasks: with repeats a task's score is the mean over its graded repeats, its pass their share.
    """
    grades = [figures for result in results for figures in result.grades]
    return {
        **_short_numbers(results),
        "macro_mean": _macro_mean(results),
        "exclusion_bounds": _exclusion_bounds(results),
        "repeats": repeats_summary(results),
        "economic_value": economic_value(results),
        "tokens": _tokens(grades),
        "cost_usd": {
            "answer": _sum(figures.cost_usd[0] for figures in grades),
            "judge": _sum(figures.cost_usd[1] for figures in grades),
        },
        "spent_usd": _sum(figures.spent_usd for figures in grades),
    }


def _short_numbers(results: Results) -> dict[str, Any]:
    states = Counter(figures.state for result in results for figures in result.grades)
    total = states.total()
    scored = [(result.score, result.facts) for result in results if result.score is not None]
    marked = [(result.passed, result.facts) for result in results if result.passed is not None]
    return {
        "tasks": len(results),
        "scored": states["scored"],
        "failed": states["failed"],
        "excluded": states["excluded"],
        "coverage": (total - states["excluded"]) / total if total else None,
        "metric": next((figures.metric for result in results for figures in result.graded), None),
        "mean": estimate(
            [score for score, _ in scored], [facts.cluster for _, facts in scored], results[0].facts.bounds
        ),
        "pass_rate": estimate([share for share, _ in marked], [facts.cluster for _, facts in marked]),
    }


def _macro_mean(results: Results) -> dict[str, Any] | None:
    """The mean of the domain means; None where there is only one domain."""
    scored = [(result.score, result.facts) for result in results if result.score is not None]
    domains = [facts.domain for _, facts in scored]
    count = len(set(domains))
    if count < 2:
        return None
    values, clusters = [score for score, _ in scored], [facts.cluster for _, facts in scored]
    return {"domains": count, **(estimate(values, clusters, results[0].facts.bounds, domains) or {})}


def _exclusion_bounds(results: Results) -> dict[str, list[float | None]] | None:
    """The lowest and highest mean, and pass rate, that the excluded could bring; None where nothing is open."""
    grades = [(result, figures) for result in results for figures in result.grades]
    if all(figures.state != "excluded" and figures.low == figures.high for _, figures in grades):
        return None
    tasks = [result.id for result, _ in grades]

    def bounds(values: Sequence[float | None], low: Sequence[float], high: Sequence[float]) -> list[float | None]:
        found = exclusion_bounds(values, low=low, high=high, tasks=tasks)
        return [found.low, found.high]

    lowest = [result.facts.lowest if figures.low is None else figures.low for result, figures in grades]
    highest = [result.facts.highest if figures.high is None else figures.high for result, figures in grades]
    found = {"mean": bounds([None] * len(grades), lowest, highest)}
    if any(figures.passed is not None for _, figures in grades):
        marks = [None if figures.passed is None else float(figures.passed) for _, figures in grades]
        found["pass_rate"] = bounds(marks, [0.0] * len(grades), [1.0] * len(grades))
    return found


def _slices(results: Results, *, topics: bool) -> dict[str, Any]:
    """The figures by group, and by tag."""
    fields = dict.fromkeys(name for result in results for name in result.facts.groups)
    chosen = [name for name in fields if topics or not name.startswith("topic_")]
    return {
        "groups": {
            name: {value: _short_numbers(members) for value, members in _by_group(results, name).items()}
            for name in chosen
        },
        "tags": _tags(results),
    }


def _tags(results: Results) -> dict[str, dict[str, Any]]:
    tags = dict.fromkeys(tag for result in results for tag in result.facts.tags)
    return {tag: _tag(tag, [result for result in results if tag in result.tags]) for tag in tags}


def _tag(tag: str, results: Results) -> dict[str, Any]:
    def column(get: Callable[[TagScore], float | None], bounds: tuple[float, float] | None = (0.0, 1.0)) -> Any:
        found = [(get(result.tags[tag]), result.facts.cluster) for result in results]
        known = [(value, cluster) for value, cluster in found if value is not None]
        return estimate([value for value, _ in known], [cluster for _, cluster in known], bounds)

    figures = {
        "tasks": len(results),
        "score": column(lambda scores: scores.score),
        "hit_rate": column(lambda scores: scores.hit_rate),
        "avoidance_rate": column(lambda scores: scores.avoidance_rate),
    }
    if results and not results[0].facts.clip:
        figures["weight_ratio"] = column(lambda scores: scores.weight_ratio, None)
    return figures


def _split(results: Results, name: Callable[[TaskResult], str | None]) -> dict[str, list[TaskResult]]:
    """The tasks by a name, in the order of its first appearance; those without one are left out."""
    parts: dict[str, list[TaskResult]] = defaultdict(list)
    for result in results:
        if value := name(result):
            parts[value].append(result)
    return parts


def _by_group(results: Results, name: str) -> dict[str, list[TaskResult]]:
    return _split(results, lambda result: result.facts.groups.get(name))


def _reasons(results: Results) -> dict[str, int]:
    grades = [figures for result in results for figures in result.grades]
    counts = Counter(f"{figures.state}: {figures.reason}" for figures in grades if figures.reason)
    return dict(counts.most_common())


def _tokens(grades: Sequence[Figures]) -> dict[str, dict[str, int]]:
    sums = [sum(column) for column in zip(*(figures.tokens for figures in grades), strict=True)]
    return {
        "answer": {"input_tokens": sums[0], "output_tokens": sums[1]},
        "judge": {"input_tokens": sums[2], "output_tokens": sums[3]},
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """A sum; unknown as soon as one value is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
