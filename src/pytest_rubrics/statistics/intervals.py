"""Means and pass rates with their intervals, and what exclusions could change.

Tasks are the sample: an interval says where the mean would lie over all tasks of this kind, not only over these. Tasks
that share a cluster, such as the two translations of a case, are not independent, and every standard error here counts
clusters.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from pytest_rubrics.statistics.distributions import student_quantile

PSEUDO_CLUSTERS = 0.1
"""Weight of the pseudo-cluster at each bound in `effective_size`; chosen by ``perf/interval_coverage.py``."""


class Estimate(NamedTuple):
    """A figure and its interval.

    Attributes:
        value: The figure, or None where it is not defined (no values at all).
        low: Lower end of the interval, or None where the data allow none.
        high: Upper end, likewise.
        n: Number of values.
        clusters: Number of independent clusters among them.
        se: Cluster-robust standard error, or None with fewer than two clusters.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    clusters: int
    se: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class ClusteredMean(NamedTuple):
    """A mean and what its interval is made of.

    Attributes:
        value: The mean, or the mean of the domain means.
        variance: Cluster-robust variance of ``value``, or None where a domain has fewer than two clusters.
        df: Degrees of freedom of ``variance``.
        size: Number of clusters in domains of one size that would give the same precision; with one domain, their
            number. A cluster that lies in several domains counts in each.
        n: Number of values.
        clusters: Number of clusters.
    """

    value: float
    variance: float | None
    df: float
    size: float
    n: int
    clusters: int


class Bounds(NamedTuple):
    """What excluded grades could do to a mean.

    Attributes:
        low: The mean if every excluded grade had the lowest possible score; None without grades.
        high: The mean if every excluded grade had the highest possible score; None without grades.
        coverage: Share of grades that count, 0 to 1; None without grades.
        graded: Grades that count.
        excluded: Grades that do not.
    """

    low: float | None
    high: float | None
    coverage: float | None
    graded: int
    excluded: int


def mean(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    domains: Sequence[Hashable] | None = None,
    bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Mean with a two-sided interval: of scores, of passes, or of domain means.

    Without ``bounds``: the t interval with the cluster-robust standard error. With every task its own cluster this is
    the usual t interval. There is no interval if all clusters agree exactly, since nothing then tells their spread.

    With ``bounds``: the score interval (Wilson 1927) on the effective size, with the t quantile in place of the normal
    one. It never leaves the bounds, has a width at 0 and at 1, and leans to the side where the long tail is. Simulation
    chose it (``perf/interval_coverage.py``: 20 to 400 tasks, single and paired, 1 and 4 repeats, pass rates .05 to .95,
    five score distributions). It holds the truth in 93 to 97 % of the draws of 88 of these 104 benchmarks. In the other
    16, all of 20 or 40 tasks with nearly every score at one bound or few possible values of the rate, it errs on the
    safe side, up to 98.6 %: of 20 tasks at a pass rate of .05, 36 samples in 100 hold no pass at all, and the coverage
    of any interval moves in steps as large. There the t interval falls to between 60 and 90 %, Wilson's with the normal
    quantile to 86 %.

    Args:
        values: One value a task: its score, its pass (0 or 1), or the mean of these over its repeats.
        clusters: What each task shares with others; None, or an empty entry, for a task that stands alone.
        domains: Where given, the unweighted mean over the domains' means is estimated (macro mean).
        bounds: Range of the metric, such as (0, 1) for an expert score or a pass; None where it has none.
        confidence: Share of such intervals that hold the true mean.

    Returns:
        The estimate. Fewer than two clusters, in any domain, give no interval.

    Raises:
        ValueError: A value is not finite or outside the bounds, or the arguments differ in length.
    """
    check(values, bounds)
    centre = clustered_mean(values, clusters=clusters, domains=domains)
    if centre is None:
        return Estimate(None, None, None, 0, 0, None)
    interval = _interval(centre, bounds, confidence)
    low, high = interval or (None, None)
    se = None if centre.variance is None else math.sqrt(centre.variance)
    return Estimate(centre.value, low, high, centre.n, centre.clusters, se)


def clustered_mean(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    domains: Sequence[Hashable] | None = None,
) -> ClusteredMean | None:
    """Mean, its cluster-robust variance and degrees of freedom; None without values.

    With residuals summed in each of the G clusters, the variance is G / (G - 1) times the sum of the squared sums, over
    n squared (Liang and Zeger 1986; factor and the G - 1 degrees of freedom as in Cameron and Miller 2015). Over
    domains the variances add as in a stratified sample of clusters (Cochran 1977), the residuals of a cluster that lies
    in several domains are summed first, and the degrees of freedom are Satterthwaite's (1946).
    """
    n = len(values)
    owners = cluster_names(clusters, n)
    if domains is not None and len(domains) != n:
        raise ValueError(f"{n} values need {n} domains, not {len(domains)}")
    if n == 0:
        return None
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, domain in enumerate([None] * n if domains is None else domains):
        members[domain].append(index)
    value, variances, counts = 0.0, [], []
    sums: dict[Hashable, float] = defaultdict(float)
    for indices in members.values():
        centre, residuals = _residuals([values[index] for index in indices], [owners[index] for index in indices])
        count = len(residuals)
        scale = math.sqrt(count / max(1, count - 1)) / len(members)
        for name, residual in residuals.items():
            sums[name] += scale * residual
        value += centre / len(members)
        variances.append(scale**2 * math.fsum(residual**2 for residual in residuals.values()))
        counts.append(count)
    size = len(members) ** 2 / math.fsum(1.0 / count for count in counts)
    if min(counts) < 2:
        return ClusteredMean(value, None, 0.0, size, n, len(set(owners)))
    variance = _without_noise(math.fsum(residual**2 for residual in sums.values()), values)
    df = _satterthwaite(variances, counts) if variance else float(sum(counts) - len(counts))
    return ClusteredMean(value, variance, df, size, n, len(set(owners)))


def _residuals(values: Sequence[float], owners: Sequence[Hashable]) -> tuple[float, dict[Hashable, float]]:
    """The mean, and each cluster's share of the distance from it."""
    centre = math.fsum(values) / len(values)
    residuals: dict[Hashable, float] = defaultdict(float)
    for owner, value in zip(owners, values, strict=True):
        residuals[owner] += (value - centre) / len(values)
    return centre, residuals


def _without_noise(variance: float, values: Sequence[float]) -> float:
    """The variance, or 0 where it is no more than the rounding of the values."""
    return 0.0 if math.sqrt(variance) <= 1e-14 * max(map(abs, values)) else variance


def _satterthwaite(variances: Sequence[float], counts: Sequence[int]) -> float:
    largest = max(variances)
    shares = [variance / largest for variance in variances]
    return sum(shares) ** 2 / sum(share**2 / (count - 1) for share, count in zip(shares, counts, strict=True))


def _interval(
    centre: ClusteredMean, bounds: tuple[float, float] | None, confidence: float
) -> tuple[float, float] | None:
    if centre.variance is None:
        return None
    critical = student_quantile((1.0 + confidence) / 2.0, centre.df)
    if bounds is None:
        half = critical * math.sqrt(centre.variance)
        return (centre.value - half, centre.value + half) if half else None
    lowest, width = bounds[0], bounds[1] - bounds[0]
    share = min(1.0, max(0.0, (centre.value - lowest) / width))
    size = effective_size(share, centre.variance / width**2, min(centre.size, centre.clusters))
    low, high = score_interval(share, size, critical)
    return min(centre.value, lowest + width * low), max(centre.value, lowest + width * high)


def effective_size(share: float, variance: float, clusters: float) -> float:
    """Number of independent yes-no observations that a mean in [0, 1] is worth.

    It is the size at which share (1 - share) / (size - 1) equals the variance of the mean, that is, the sample size
    over the design effect (Kish 1965). Few clusters, or scores that nearly all lie at one bound, can make the variance
    come out too small, or 0. A tenth of a pseudo-cluster at 0 and at 1 prevents that, as the pseudo-observations of
    Agresti and Coull (1998) do for proportions. It enters the size only, not the mean; for plain yes-no values the size
    is exactly their number, with or without it.

    Args:
        share: The mean, scaled to [0, 1].
        variance: Variance of that mean.
        clusters: Number of independent clusters.
    """
    total = clusters + 2.0 * PSEUDO_CLUSTERS
    centre = (clusters * share + PSEUDO_CLUSTERS) / total
    squares = (
        variance * clusters * (clusters - 1.0)
        + clusters * (share - centre) ** 2
        + PSEUDO_CLUSTERS * (centre**2 + (1.0 - centre) ** 2)
    )
    return centre * (1.0 - centre) * total * (total - 1.0) / squares + 1.0 - 2.0 * PSEUDO_CLUSTERS


def score_interval(share: float, size: float, critical: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    Source: Wilson, Journal of the American Statistical Association 22 (1927) 209.

    Args:
        share: The proportion, 0 to 1.
        size: Number of observations; need not be whole.
        critical: Quantile of the normal distribution (1.96), or of t where the size is itself estimated.
    """
    squared = critical**2 / size
    centre = (share + squared / 2.0) / (1.0 + squared)
    half = math.sqrt(share * (1.0 - share) * squared + squared**2 / 4.0) / (1.0 + squared)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def exclusion_bounds(
    scores: Sequence[float | None],
    *,
    low: float | Sequence[float] = 0.0,
    high: float | Sequence[float] = 1.0,
    tasks: Sequence[Hashable] | None = None,
) -> Bounds:
    """Lowest and highest mean that the excluded grades could have brought, and the coverage.

    Source: worst-case bounds of a mean with missing values (Manski 1989); they assume nothing about why grades miss.

    Args:
        scores: One entry a grade; None where it is excluded.
        low: Lowest possible score: one number, or one a grade where it differs (a compliance score).
        high: Highest possible score, likewise.
        tasks: The task of each grade, where tasks have repeats: a task's score is the mean over its repeats.

    Raises:
        ValueError: A score is not finite, or the arguments differ in length.
    """
    check([score for score in scores if score is not None], None)
    count = len(scores)
    graded = sum(score is not None for score in scores)
    if not count:
        return Bounds(None, None, None, 0, 0)
    names = range(count) if tasks is None else tasks

    def filled(extreme: float | Sequence[float]) -> float:
        extremes = [extreme] * count if isinstance(extreme, int | float) else extreme
        by_task: dict[Hashable, list[float]] = defaultdict(list)
        for name, score, instead in zip(names, scores, extremes, strict=True):
            by_task[name].append(instead if score is None else score)
        return math.fsum(math.fsum(own) / len(own) for own in by_task.values()) / len(by_task)

    return Bounds(filled(low), filled(high), graded / count, graded, count - graded)


def cluster_names(clusters: Sequence[Hashable] | None, n: int) -> list[Hashable]:
    """One cluster a value; a value without a cluster (None or an empty text) becomes a cluster of its own.

    Raises:
        ValueError: There are not ``n`` clusters.
    """
    if clusters is None:
        return list(range(n))
    if len(clusters) != n:
        raise ValueError(f"{n} values need {n} clusters, not {len(clusters)}")
    return [("alone", index) if name is None or name == "" else name for index, name in enumerate(clusters)]


def check(values: Sequence[float], bounds: tuple[float, float] | None) -> None:
    """Refuse values that are not finite, or outside the bounds.

    Raises:
        ValueError: It names the first such value.
    """
    low, high = bounds or (-math.inf, math.inf)
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"value {index + 1} of {len(values)} is {value}: leave out what has no score")
        if not low <= value <= high:
            raise ValueError(f"value {index + 1} of {len(values)} is {value}, outside the bounds {low} to {high}")
