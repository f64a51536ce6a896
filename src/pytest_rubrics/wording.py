"""Figures as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

Figure: TypeAlias = Literal["mean", "pass_rate"]


def shown(value: float | None, figure: Figure, *, sign: bool = False) -> str:
    """A score with three digits, a pass rate in percent.

    >>> shown(0.61249, "mean"), shown(0.365, "pass_rate"), shown(-0.03, "mean", sign=True)
    ('0.612', '36.5%', '-0.030')
    """
    if value is None:
        return "-"
    plus = "+" if sign else ""
    return f"{value:{plus}.3f}" if figure == "mean" else f"{value:{plus}.1%}"


def with_interval(value: float | None, ends: Sequence[float] | None, figure: Figure, *, sign: bool = False) -> str:
    """A figure and its 95 % interval.

    >>> with_interval(0.365, [0.3, 0.435], "pass_rate")
    '36.5% (95 % interval 30.0% to 43.5%)'
    """
    if ends is None:
        return f"{shown(value, figure, sign=sign)} (no interval)"
    low, high = (shown(end, figure, sign=sign) for end in ends)
    return f"{shown(value, figure, sign=sign)} (95 % interval {low} to {high})"


def p_words(p: float) -> str:
    """A p value in few characters.

    >>> p_words(0.0004), p_words(0.0312), p_words(1.0)
    ('p < .001', 'p = .031', 'p = 1')
    """
    if p < 0.001:
        return "p < .001"
    return f"p = {f'{p:.3f}'.lstrip('0')}" if p < 0.9995 else "p = 1"
