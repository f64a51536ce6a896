"""Figures with intervals, as they stand in ``summary.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_rubrics.statistics import intervals


def estimate(
    values: Sequence[float],
    clusters: Sequence[str],
    bounds: tuple[float, float] | None = (0.0, 1.0),
    domains: Sequence[str] | None = None,
) -> dict[str, Any] | None:
    """A mean as ``value`` and ``ci95``, which is None where the data allow no interval; None without values.

    Args:
        values: One value a task.
        clusters: Its cluster, likewise.
        bounds: Range of the values, or None.
        domains: Its domain, for the mean of the domain means.
    """
    if not values:
        return None
    found = intervals.mean(values, clusters=clusters, bounds=bounds, domains=domains)
    return {"value": found.value, "ci95": None if found.interval is None else list(found.interval)}
