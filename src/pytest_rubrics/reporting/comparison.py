"""Comparisons in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tabulate

from pytest_rubrics.baselines import Baseline
from pytest_rubrics.comparing import (
    SliceComparison,
    by_subset,
    by_track,
    changed_tasks,
    pairs,
    passes_changed,
    unshared,
)
from pytest_rubrics.reference_rows import WARNING, ReferenceRow
from pytest_rubrics.reporting.table import COMPACT
from pytest_rubrics.wording import Figure, p_words, shown

ALPHA = 0.05


def comparison_lines(baseline: Baseline, candidate: Baseline, most_flips: int) -> Iterator[str]:
    """How two runs differ.

    Args:
        baseline: The first run.
        candidate: The second run.
        most_flips: How many changed tasks to list.
    """
    yield f"A: {_name(baseline)}"
    yield f"B: {_name(candidate)}"
    yield ""
    figures: list[Figure] = ["mean"] if baseline.pass_at is None else ["mean", "pass_rate"]
    for figure in figures:
        tracks, subsets = by_track(baseline, candidate, figure), by_subset(baseline, candidate, figure)
        yield from _table(figure, candidate.metric, tracks, subsets if len(subsets) > len(tracks) else []).splitlines()
        yield ""
        yield from (_verdict(each, figure) for each in tracks)
        yield ""
    yield from _counts(baseline, candidate)
    yield from _flips(baseline, candidate, most_flips)


def _name(scores: Baseline) -> str:
    answers = f", {scores.repeats} answers a task" if scores.repeats > 1 else ""
    return f"{scores.model} in run {scores.run}, judged by {scores.judge}{answers}"


def _table(figure: Figure, metric: str, tracks: Sequence[SliceComparison], subsets: Sequence[SliceComparison]) -> str:
    name = f"mean {metric}" if figure == "mean" else "pass rate"
    rows = [_row(each, figure) for each in [*subsets, *tracks]]
    headers = [name, "tasks", "A", "B", "B - A", "95 % interval", "p", "Holm"]
    columns = ["left", *["right"] * (len(headers) - 1)]
    return tabulate.tabulate(rows, headers, tablefmt=COMPACT, colalign=columns, disable_numparse=True)


def _row(each: SliceComparison, figure: Figure) -> list[str]:
    difference = each.comparison.difference
    interval = "-"
    if difference.interval is not None:
        interval = " to ".join(shown(end, figure, sign=True) for end in difference.interval)
    return [
        each.name,
        str(each.tasks),
        shown(each.baseline, figure),
        shown(each.candidate, figure),
        shown(difference.value, figure, sign=True),
        interval,
        _p(each.comparison.p_value),
        _p(each.p_holm),
    ]


def _p(p: float | None) -> str:
    return "-" if p is None else p_words(p).removeprefix("p ").removeprefix("= ")


def _verdict(each: SliceComparison, figure: Figure) -> str:
    p = each.comparison.p_value
    value = each.comparison.difference.value or 0.0
    if p is not None and p < ALPHA:
        words = f"B is {'better' if value > 0 else 'worse'} ({p_words(p)})"
    elif each.comparison.same == each.tasks:
        words = f"no difference can be told: A and B are the same on all {each.tasks} tasks"
    else:
        words = f"no difference can be told{'' if p is None else f' ({p_words(p)})'}"
    least = each.smallest_detectable
    found = (
        "" if least is None else f"; {each.tasks} tasks show a difference of {shown(least, figure)} four times in five"
    )
    return f"{each.name}: {words}{found}"


def _counts(baseline: Baseline, candidate: Baseline) -> Iterator[str]:
    found = pairs(baseline, candidate)
    shared = sum(id_ in candidate.tasks for id_ in baseline.tasks)
    if len(found) < shared:
        yield f"compared on {len(found)} of {shared} tasks: the others were excluded in A or in B"
    yield from unshared(baseline, candidate)
    passes = passes_changed(baseline, candidate)
    if passes is not None:
        yield f"passes gained: {passes.gained}, lost: {passes.lost} (exact test, {p_words(passes.p_value)})"


def _flips(baseline: Baseline, candidate: Baseline, most: int) -> Iterator[str]:
    flips = changed_tasks(baseline, candidate)
    if not flips:
        return
    what = "score changed" if baseline.pass_at is None else f"score crossed {baseline.pass_at:g}"
    yield f"tasks whose {what}, the largest change first ({len(flips)}):"
    for flip in flips[:most]:
        task = baseline.tasks[flip.task]
        yield f"  {task.subset}-{task.key}: {flip.baseline:.3f} to {flip.candidate:.3f} ({flip.change:+.3f})"
    if len(flips) > most:
        yield f"  and {len(flips) - most} more"


def reference_lines(parts: Sequence[tuple[str, Mapping[str, Any]]], rows: Sequence[ReferenceRow]) -> Iterator[str]:
    """A table of one's own runs among published ones, by the score in the first track.

    Args:
        parts: The run and the summary of each of one's own.
        rows: The published ones.
    """
    tracks = list(dict.fromkeys(track for _, part in parts for track in part["tracks"]))
    table = [_own(run, part, tracks) for run, part in parts] + [_published(row, tracks) for row in rows]
    table.sort(key=lambda row: float("-inf") if row.score is None else row.score, reverse=True)
    headers = ["model", *(name for track in tracks for name in (track, "pass", "value"))]
    columns = ["left", *["right"] * (len(headers) - 1)]
    cells = [[row.name, *map(_one_digit, row.figures)] for row in table]
    yield from tabulate.tabulate(cells, headers, tablefmt=COMPACT, colalign=columns, disable_numparse=True).splitlines()
    yield ""
    yield f"* these runs. WARNING: {WARNING}."
    yield "Mean score and pass rate in percent; economic value in thousands of the track's currency."


class _Row(NamedTuple):
    """A line of the table: score, pass rate and value in each track."""

    name: str
    figures: Sequence[float | None]

    @property
    def score(self) -> float | None:
        return self.figures[0] if self.figures else None


def _published(row: ReferenceRow, tracks: Sequence[str]) -> _Row:
    metrics = ("expert_score", "pass_rate", "economic_value_k")
    figures = [row.figures.get((track, metric)) for track in tracks for metric in metrics]
    return _Row(f"  {row.model} ({row.mode})", figures)


def _own(run: str, part: Mapping[str, Any], tracks: Sequence[str]) -> _Row:
    figures: list[float | None] = []
    for track in tracks:
        numbers = part["tracks"].get(track, {})
        values = numbers.get("economic_value") or {}
        earned = sum(entry["earned"] for entry in values.values()) / 1000 if len(values) == 1 else None
        figures += [_percent(numbers.get("mean")), _percent(numbers.get("pass_rate")), earned]
    return _Row(f"* {part['model']} ({part['track']}, run {run})", figures)


def _percent(estimate: Mapping[str, Any] | None) -> float | None:
    return None if estimate is None else 100.0 * estimate["value"]


def _one_digit(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1f}"
