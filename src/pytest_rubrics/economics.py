"""Economic value: what the tasks that a model passed would have cost if experts had done them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pytest_rubrics.task_results import TaskResult

PARTIAL_CREDIT = "Our own view, not the published metric: the value of each task times its score, cut to 0..1."


def economic_value(results: Sequence[TaskResult]) -> dict[str, dict[str, Any]] | None:
    """Value by currency, never converted or added up; None where no task has a value or there is no pass mark.

    A task counts once, whatever its repeats: its value times the share of its graded repeats that passed. Source:
    $OneMillion-Bench, full value for a pass and nothing for anything else.
    """
    by_currency: dict[str, list[tuple[TaskResult, float]]] = defaultdict(list)
    for result in results:
        if result.facts.value is not None:
            currency, amount = result.facts.value
            by_currency[currency].append((result, amount))
    has_mark = any(result.passed is not None for result in results)
    if not by_currency or not has_mark:
        return None
    return {currency: _of_currency(currency, by_currency[currency]) for currency in sorted(by_currency)}


def _of_currency(currency: str, valued: Sequence[tuple[TaskResult, float]]) -> dict[str, Any]:
    earned = sum(amount * (result.passed or 0.0) for result, amount in valued)
    costs = [cost for result, _ in valued for figures in result.grades for cost in figures.cost_usd]
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    return {
        "tasks": len(valued),
        "possible": sum(amount for _, amount in valued),
        "earned": earned,
        # What tasks without a single grade would have been worth.
        "excluded": sum(amount for result, amount in valued if not result.graded),
        "cost_usd": cost,
        "net_of_cost": earned - cost if currency == "USD" and cost is not None else None,
        "partial_credit": sum(amount * min(1.0, max(0.0, result.score or 0.0)) for result, amount in valued),
    }
