"""Two runs on the same tasks: whether they can be compared, and how they differ, task by task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_rubrics.baselines import Baseline, TaskScore
from pytest_rubrics.comparability import differences
from pytest_rubrics.statistics.comparison import (
    Comparison,
    Flip,
    McNemar,
    compare,
    flips,
    holm,
    mcnemar,
    minimal_detectable_difference,
)
from pytest_rubrics.wording import Figure

SHOWN_NAMES = 5
TOTAL = "total"


class Pair(NamedTuple):
    """A task that both runs graded."""

    id: str
    baseline: TaskScore
    candidate: TaskScore


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """How the two runs differ on a slice of the tasks.

    Attributes:
        name: The track or subset; `TOTAL` where there are no tracks.
        tasks: Number of tasks that both runs graded.
        baseline: Mean of the first run over them; None without tasks.
        candidate: Mean of the second run over them.
        comparison: The difference, candidate minus baseline, with interval and p values.
        p_holm: P value of "no difference", corrected for the number of slices; None where the data allow none.
    """

    name: str
    tasks: int
    baseline: float | None
    candidate: float | None
    comparison: Comparison
    p_holm: float | None

    @property
    def smallest_detectable(self) -> float | None:
        """Smallest true difference that this many tasks show with a chance of 80 % (two-sided, 5 %)."""
        sd = self.comparison.sd
        return minimal_detectable_difference(sd, self.tasks, sides=2) if sd and self.tasks else None


def obstacles(baseline: Baseline, candidate: Baseline) -> list[str]:
    """Why two runs cannot be compared, in words; empty where they can."""
    if baseline.benchmark != candidate.benchmark:
        return [f"the benchmark is {candidate.benchmark} and was {baseline.benchmark}"]
    found = differences(candidate.settings, baseline.settings)
    shared = [id_ for id_ in baseline.tasks if id_ in candidate.tasks]
    edited = [id_ for id_ in shared if baseline.tasks[id_].fingerprint != candidate.tasks[id_].fingerprint]
    if edited:
        found.append(f"the data of {_counted(edited, baseline)} was changed since")
    if not shared:
        found.append("they have no task in common")
    return found


def unshared(baseline: Baseline, candidate: Baseline) -> list[str]:
    """Which tasks only one of two runs has, in words; empty where both have the same."""
    found = []
    if missing := [id_ for id_ in baseline.tasks if id_ not in candidate.tasks]:
        found.append(f"{_counted(missing, baseline)} of the baseline is not in this run")
    if more := [id_ for id_ in candidate.tasks if id_ not in baseline.tasks]:
        found.append(f"{_counted(more, candidate)} of this run is not in the baseline")
    return found


def pairs(baseline: Baseline, candidate: Baseline) -> list[Pair]:
    """The tasks that both runs graded, in the baseline's order."""
    shared = [Pair(id_, task, candidate.tasks[id_]) for id_, task in baseline.tasks.items() if id_ in candidate.tasks]
    return [pair for pair in shared if pair.baseline.score is not None and pair.candidate.score is not None]


def by_track(baseline: Baseline, candidate: Baseline, figure: Figure = "mean") -> list[SliceComparison]:
    """The difference in each track, which are never pooled; in all tasks where there are no tracks."""
    return _by(baseline, candidate, figure, lambda task: task.track or TOTAL)


def by_subset(baseline: Baseline, candidate: Baseline, figure: Figure = "mean") -> list[SliceComparison]:
    """The difference in each subset, with p values corrected for their number."""
    return _by(baseline, candidate, figure, lambda task: task.subset)


def changed_tasks(baseline: Baseline, candidate: Baseline) -> list[Flip]:
    """Tasks that crossed the pass mark, the largest change first; without a mark, all whose score changed."""
    found = pairs(baseline, candidate)
    before = {pair.id: pair.baseline.score for pair in found if pair.baseline.score is not None}
    after = {pair.id: pair.candidate.score for pair in found if pair.candidate.score is not None}
    return flips(before, after, pass_at=baseline.pass_at)


def passes_changed(baseline: Baseline, candidate: Baseline) -> McNemar | None:
    """Passes gained and lost; None without a pass mark, or where a pass is a share because of repeats."""
    found = pairs(baseline, candidate)
    marks = [(pair.baseline.passed, pair.candidate.passed) for pair in found]
    if any(mark not in {0.0, 1.0} for both in marks for mark in both):
        return None
    before, after = [bool(first) for first, _ in marks], [bool(second) for _, second in marks]
    return mcnemar(before, after, clusters=[pair.baseline.cluster for pair in found])


def _by(
    baseline: Baseline, candidate: Baseline, figure: Figure, name: Callable[[TaskScore], str]
) -> list[SliceComparison]:
    slices: dict[str, list[Pair]] = {name(task): [] for task in baseline.tasks.values()}
    for pair in pairs(baseline, candidate):
        slices[name(pair.baseline)].append(pair)
    bounds = (0.0, 1.0) if figure == "pass_rate" else baseline.bounds
    found = {name: _compare(members, figure, bounds) for name, members in slices.items() if members}
    p_values = {name: p for name, (_, _, comparison) in found.items() if (p := comparison.p_value) is not None}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        SliceComparison(name, comparison.difference.n, before, after, comparison, corrected.get(name))
        for name, (before, after, comparison) in found.items()
    ]


def _compare(
    members: Sequence[Pair], figure: Figure, bounds: tuple[float, float] | None
) -> tuple[float | None, float | None, Comparison]:
    values = [(_value(pair.baseline, figure), _value(pair.candidate, figure), pair) for pair in members]
    known = [(before, after, pair) for before, after, pair in values if before is not None and after is not None]
    before, after = [first for first, _, _ in known], [second for _, second, _ in known]
    comparison = compare(before, after, clusters=[pair.baseline.cluster for *_, pair in known], bounds=bounds)
    return _mean(before), _mean(after), comparison


def _value(task: TaskScore, figure: Figure) -> float | None:
    return task.score if figure == "mean" else task.passed


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _counted(ids: Sequence[str], baseline: Baseline) -> str:
    """A number of tasks and the names of the first ones."""
    names = [f"{task.subset}-{task.key}" for task in (baseline.tasks[id_] for id_ in ids[:SHOWN_NAMES])]
    more = ", ..." if len(ids) > SHOWN_NAMES else ""
    return f"{len(ids)} {'task' if len(ids) == 1 else 'tasks'} ({', '.join(names)}{more})"
