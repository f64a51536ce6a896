"""What repeats tell: how sure a pass is, and where scores differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_rubrics.estimates import estimate
from pytest_rubrics.statistics import repeats
from pytest_rubrics.task_results import TaskResult

EVERY_K_UP_TO = 10  # above, powers of two


def repeats_summary(results: Sequence[TaskResult]) -> dict[str, Any] | None:
    """Pass@k, pass^k, each task's mean and spread, and the parts of the variance; None without repeats.

    ``pass_at_k`` and ``pass_hat_k`` at k are averaged over the tasks with k graded answers or more.
    """
    most = max((len(result.graded) for result in results), default=0)
    if all(len(result.grades) < 2 for result in results):
        return None
    has_mark = any(result.passed is not None for result in results)
    return {
        "pass_at_k": _for_each_k(results, most, repeats.pass_at_k) if has_mark else None,
        "pass_hat_k": _for_each_k(results, most, repeats.pass_hat_k) if has_mark else None,
        "variance": _variance(results),
        "by_task": {result.id: {"key": result.key, **repeats.spread(result.scores)._asdict()} for result in results},
    }


def _for_each_k(
    results: Sequence[TaskResult], most: int, chance: Callable[[int, int, int], float]
) -> dict[str, dict[str, Any]]:
    return {str(k): _chance(results, k, chance) for k in _chosen(most)}


def _chosen(most: int) -> list[int]:
    every = list(range(1, min(most, EVERY_K_UP_TO) + 1))
    powers = [2**n for n in range(4, most.bit_length()) if 2**n <= most]
    return sorted({*every, *powers, most} - {0})


def _chance(results: Sequence[TaskResult], k: int, chance: Callable[[int, int, int], float]) -> dict[str, Any]:
    enough = [result for result in results if len(result.graded) >= k]
    values = [
        chance(len(result.graded), sum(bool(figures.passed) for figures in result.graded), k) for result in enough
    ]
    clusters = [result.facts.cluster for result in enough]
    return {"tasks": len(enough), **(estimate(values, clusters) or {})}


def _variance(results: Sequence[TaskResult]) -> dict[str, dict[str, Any] | None]:
    parts = repeats.variance_components([[[score] for score in result.scores] for result in results])
    return {name: None if part is None else part._asdict() for name, part in parts._asdict().items()}
