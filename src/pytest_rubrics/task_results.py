"""What a model achieved on each task: its grades taken together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_rubrics.facts import Facts, TaskFacts
from pytest_rubrics.figures import Figures
from pytest_rubrics.tag_scores import TagScore, tag_scores


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task and its grades: one for each repeat.

    Attributes:
        id: Id of the task.
        facts: What is known of the task.
        grades: All its grades.
        graded: Those that count: scored or failed.
        score: Mean score over the graded repeats; None where there is none.
        passed: Share of the graded repeats that passed; None where there is none, or no pass mark.
        tags: Scores by kind of criterion.
    """

    id: str
    facts: TaskFacts
    grades: Sequence[Figures]
    graded: Sequence[Figures]
    score: float | None
    passed: float | None
    tags: Mapping[str, TagScore]

    @property
    def key(self) -> str:
        """Short name of the task."""
        return self.grades[0].key

    @property
    def subset(self) -> str:
        """Slice the task belongs to."""
        return self.grades[0].subset

    @property
    def scores(self) -> list[float]:
        """Score of each graded repeat."""
        return [figures.score for figures in self.graded if figures.score is not None]


def task_results(figures: Iterable[Figures], facts: Facts) -> list[TaskResult]:
    """The tasks of some grades of one benchmark, model and judge, in the order of their first appearance."""
    by_task: dict[str, list[Figures]] = defaultdict(list)
    for each in figures:
        by_task[each.task_id].append(each)
    nothing = TaskFacts()
    return [_result(grades, facts.get((grades[0].benchmark, id_), nothing)) for id_, grades in by_task.items()]


def _result(grades: list[Figures], facts: TaskFacts) -> TaskResult:
    graded = [figures for figures in grades if figures.state != "excluded"]
    scores = [figures.score for figures in graded if figures.score is not None]
    marks = [float(figures.passed) for figures in graded if figures.passed is not None]
    tags = tag_scores(facts, graded)
    return TaskResult(grades[0].task_id, facts, grades, graded, _mean(scores), _mean(marks), tags)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
