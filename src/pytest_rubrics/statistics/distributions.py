"""Student's t, normal, beta and binomial distribution functions in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b), for a and b above 0.

    Source: NIST Digital Library of Mathematical Functions, continued fraction 8.17.22, evaluated by Lentz's method.
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges quickly only on the near side of the mean
        return 1.0 - beta_cdf(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    numerator, denominator = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    fraction = denominator
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        change = 1.0
        for coefficient in (even, odd):
            denominator = 1.0 / _away_from_zero(1.0 + coefficient * denominator)
            numerator = _away_from_zero(1.0 + coefficient / numerator)
            change = numerator * denominator
            fraction *= change
        if abs(change - 1.0) < 1e-15:
            break
    return fraction


def _away_from_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY


def student_tail(t: float, df: float) -> float:
    """P(T >= t) for Student's t with ``df`` degrees of freedom."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    square = t * t
    near_zero = square < df  # each form keeps its digits on its own side
    inside = beta_cdf(square / (df + square), 0.5, df / 2.0) if near_zero else 0.0
    half = (1.0 - inside) / 2.0 if near_zero else beta_cdf(df / (df + square), df / 2.0, 0.5) / 2.0
    return half if t >= 0 else 1.0 - half


@lru_cache(maxsize=1024)
def student_quantile(probability: float, df: float) -> float:
    """The t with P(T <= t) = ``probability``, strictly between 0 and 1."""
    log_peak = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0) - 0.5 * math.log(df * math.pi)

    def density(t: float) -> float:
        return math.exp(log_peak - (df + 1.0) / 2.0 * math.log1p(t * t / df))

    return _quantile(probability, lambda t: student_tail(t, df), density)


def normal_quantile(probability: float) -> float:
    """The z with P(Z <= z) = ``probability``, strictly between 0 and 1."""

    def density(z: float) -> float:
        return math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)

    return _quantile(probability, lambda z: math.erfc(z / math.sqrt(2.0)) / 2.0, density)


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """P(X <= successes) for X binomial."""
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    return beta_cdf(1.0 - probability, trials - successes, successes + 1.0)


def _quantile(probability: float, tail: Callable[[float], float], density: Callable[[float], float]) -> float:
    """Quantile of a symmetric distribution by Newton's method.

    From 0 upwards the distribution function is concave, so each step stops short of the root and none overshoots.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a quantile needs a probability between 0 and 1, both excluded, not {probability!r}")
    if probability < 0.5:
        return -_quantile(1.0 - probability, tail, density)
    point = 0.0
    for _ in range(200):
        step = (tail(point) - (1.0 - probability)) / density(point)
        point += step
        if step <= 1e-13 * (1.0 + point):
            break
    return point
