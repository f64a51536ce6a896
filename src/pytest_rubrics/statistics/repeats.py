"""Several answers to a task, and several readings of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_rubrics.statistics.intervals import check


class Spread(NamedTuple):
    """Scores of one task over its repeats.

    Attributes:
        n: Number of scores.
        mean: Their mean; None without scores.
        sd: Their standard deviation (n - 1); None with fewer than two.
        low: The lowest; None without scores.
        high: The highest; None without scores.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


class Component(NamedTuple):
    """One part of the variance of a score.

    Attributes:
        variance: The part, in squared units of the score; never below 0.
        negative: The estimate came out below 0 and is reported as 0: the part is too small for these data to show.
    """

    variance: float
    negative: bool


class VarianceComponents(NamedTuple):
    """Where scores differ. A part is None where nothing was repeated to show it; the part above then holds it too.

    Attributes:
        task: Between tasks.
        answer: Between answers to the same task.
        judge: Between readings of the same answer.
    """

    task: Component | None
    answer: Component | None
    judge: Component | None


def pass_at_k(answers: int, passed: int, k: int) -> float:
    """Chance that at least one of k answers passes (pass@k), unbiased, from ``passed`` of ``answers``.

    Source: 1 - C(n - c, k) / C(n, k); Chen et al. 2021, arXiv 2107.03374, equation 1. Over tasks: `mean` of it, with
    bounds (0, 1).

    Raises:
        ValueError: Not 1 <= k <= answers, or not 0 <= passed <= answers.
    """
    _check_counts(answers, passed, k)
    chosen = math.comb(answers, k)
    return (chosen - math.comb(answers - passed, k)) / chosen


def pass_hat_k(answers: int, passed: int, k: int) -> float:
    """Chance that all of k answers pass (pass^k), unbiased, from ``passed`` of ``answers``.

    Source: C(c, k) / C(n, k); Yao et al. 2024, arXiv 2406.12045. Over tasks: `mean` of it, with bounds (0, 1).

    Raises:
        ValueError: Not 1 <= k <= answers, or not 0 <= passed <= answers.
    """
    _check_counts(answers, passed, k)
    return math.comb(passed, k) / math.comb(answers, k)


def _check_counts(answers: int, passed: int, k: int) -> None:
    if not (1 <= k <= answers and 0 <= passed <= answers):
        raise ValueError(
            f"{passed} passed of {answers} answers cannot tell about {k}: need 1 <= k <= answers >= passed >= 0"
        )


def spread(scores: Sequence[float]) -> Spread:
    """Mean, standard deviation and range of a task's scores over its repeats.

    Raises:
        ValueError: A score is not finite.
    """
    check(scores, None)
    n = len(scores)
    if n == 0:
        return Spread(0, None, None, None, None)
    centre = math.fsum(scores) / n
    sd = math.sqrt(math.fsum((score - centre) ** 2 for score in scores) / (n - 1)) if n > 1 else None
    return Spread(n, centre, sd, min(scores), max(scores))


def variance_components(scores: Sequence[Sequence[Sequence[float]]]) -> VarianceComponents:
    """Variance between tasks, between answers to a task, and between readings of an answer.

    Random effects, nested: method of moments on the analysis of variance, with the coefficients for unequal numbers
    (Searle, Casella and McCulloch 1992, Variance Components; Sokal and Rohlf 1995, Biometry). An estimate below 0 is
    used as it is for the next one and cut only at the end, so that the next one stays unbiased.

    Args:
        scores: For each task, for each of its answers, the scores that the readings of the judge gave. Tasks without
            answers and answers without scores are left out.

    Raises:
        ValueError: A score is not finite.
    """
    tasks = [answers for task in scores if (answers := [list(answer) for answer in task if answer])]
    readings = [score for task in tasks for answer in task for score in answer]
    check(readings, None)
    total, answer_count, task_count = len(readings), sum(map(len, tasks)), len(tasks)
    if not total:
        return VarianceComponents(None, None, None)

    sizes = [[len(answer) for answer in task] for task in tasks]
    task_means = [_mean([score for answer in task for score in answer]) for task in tasks]
    grand = _mean(readings)
    within = sum((score - _mean(answer)) ** 2 for task in tasks for answer in task for score in answer)
    among_answers = sum(
        len(answer) * (_mean(answer) - centre) ** 2
        for task, centre in zip(tasks, task_means, strict=True)
        for answer in task
    )
    among_tasks = sum(sum(own) * (centre - grand) ** 2 for own, centre in zip(sizes, task_means, strict=True))

    squares_by_task = sum(sum(size**2 for size in own) / sum(own) for own in sizes)
    squares = sum(size**2 for own in sizes for size in own) / total
    judge = within / (total - answer_count) if total > answer_count else None
    answer = task = None
    if df := answer_count - task_count:
        readings_per_answer = (total - squares_by_task) / df
        answer = (among_answers / df - (judge or 0.0)) / readings_per_answer
    if df := task_count - 1:
        answers_weight = (squares_by_task - squares) / df
        readings_per_task = (total - sum(sum(own) ** 2 for own in sizes) / total) / df
        task = (among_tasks / df - (judge or 0.0) - answers_weight * (answer or 0.0)) / readings_per_task
    return VarianceComponents(_component(task), _component(answer), _component(judge))


def _component(estimate: float | None) -> Component | None:
    return None if estimate is None else Component(max(0.0, estimate), estimate < 0.0)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
