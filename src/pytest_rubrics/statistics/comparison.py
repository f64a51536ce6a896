"""Two runs on the same tasks, task by task.

Most of the spread between tasks is common to both runs and cancels in the differences, so a paired comparison sees
changes that two separate intervals would hide.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_rubrics.statistics.distributions import normal_quantile, student_quantile, student_tail
from pytest_rubrics.statistics.intervals import ClusteredMean, Estimate, check, cluster_names, clustered_mean


class Flip(NamedTuple):
    """A task whose score, or pass, changed.

    Attributes:
        task: Its id.
        baseline: Score in the first run.
        candidate: Score in the second run.
    """

    task: str
    baseline: float
    candidate: float

    @property
    def change(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


class McNemar(NamedTuple):
    """Passes gained and lost.

    Attributes:
        gained: Tasks that failed in the first run and pass in the second.
        lost: Tasks that passed and now fail.
        p_value: Exact two-sided p value of "gains and losses are equally likely".
    """

    gained: int
    lost: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Difference of two runs, candidate minus baseline.

    Attributes:
        difference: Mean difference with its interval; ``n`` counts tasks.
        better: Tasks with a higher score in the candidate.
        worse: Tasks with a lower score.
        same: Tasks with the same score. If all are, the runs are the same as far as these scores tell.
        sd: Standard error times the root of ``n``, for `minimal_detectable_difference`: the standard deviation of the
            differences, with the effect of clusters in it. None with fewer than two clusters.
        df: Degrees of freedom of the t distribution.
        most_negative: Lowest possible difference; None where the metric has no range.
        most_positive: Highest possible difference, likewise.
    """

    difference: Estimate
    better: int
    worse: int
    same: int
    sd: float | None
    df: float
    most_negative: float | None
    most_positive: float | None

    @property
    def p_value(self) -> float | None:
        """Two-sided p value of "no difference", or None where the data allow none."""
        above, below = self.p_above(0.0), self.p_below(0.0)
        return None if above is None or below is None else min(1.0, 2.0 * min(above, below))

    def p_above(self, limit: float) -> float | None:
        """One-sided p value of "the true difference is at most ``limit``": small means that it is above.

        With ``limit`` at minus the margin this is the test of non-inferiority.
        """
        return _p_above(self.difference, self.df, limit, self.most_negative)

    def p_below(self, limit: float) -> float | None:
        """One-sided p value of "the true difference is at least ``limit``": small means that it is below."""
        value = self.difference.value
        mirrored = self.difference._replace(value=None if value is None else -value)
        return _p_above(mirrored, self.df, -limit, None if self.most_positive is None else -self.most_positive)


def compare(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    domains: Sequence[Hashable] | None = None,
    bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compare two runs on the same tasks.

    The interval is the t interval of the mean difference with its cluster-robust standard error (Miller 2024, arXiv
    2411.00640); the p values belong to it. If the difference is the same in every cluster, t is
    not defined. With ``bounds``, the exact bound on the share of unlike clusters then takes its place: a share that
    shows in none of G clusters is at most 1 - (alpha / 2) ** (1 / G) (Clopper and Pearson 1934), and the unlike
    clusters differ as much as the bounds allow. Without bounds there is then no interval and no p value.

    Args:
        baseline: One value a task in the first run: score, pass or share of passes.
        candidate: The same for the second run, tasks in the same order.
        clusters: What each task shares with others; None, or an empty entry, for a task that stands alone.
        domains: Where given, domains count the same, whatever their size (difference of macro means).
        bounds: Range of the metric, such as (0, 1).
        confidence: Share of such intervals that hold the true difference.

    Raises:
        ValueError: A value is not finite or outside the bounds, or the arguments differ in length.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"a comparison needs the same tasks twice, not {len(baseline)} and {len(candidate)} values")
    check(baseline, bounds)
    check(candidate, bounds)
    differences = [after - before for before, after in zip(baseline, candidate, strict=True)]
    better, worse = sum(change > 0 for change in differences), sum(change < 0 for change in differences)
    same = len(differences) - better - worse
    widest = None if bounds is None else bounds[1] - bounds[0]
    reach = (None, None) if widest is None else (-widest, widest)
    centre = clustered_mean(differences, clusters=clusters, domains=domains)
    if centre is None:
        return Comparison(Estimate(None, None, None, 0, 0, None), better, worse, same, None, 0.0, *reach)
    se = None if centre.variance is None else math.sqrt(centre.variance)
    low, high = _difference_interval(centre, widest, confidence)
    estimate = Estimate(centre.value, low, high, centre.n, centre.clusters, se)
    sd = None if se is None else se * math.sqrt(centre.n)
    return Comparison(estimate, better, worse, same, sd, centre.df, *reach)


def _difference_interval(
    centre: ClusteredMean, widest: float | None, confidence: float
) -> tuple[float | None, float | None]:
    if centre.variance is None or (centre.variance == 0.0 and widest is None):
        return None, None
    if centre.variance == 0.0 and widest is not None:
        unlike = 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / centre.clusters)
        return centre.value - unlike * (centre.value + widest), centre.value + unlike * (widest - centre.value)
    half = student_quantile((1.0 + confidence) / 2.0, centre.df) * math.sqrt(centre.variance)
    low, high = centre.value - half, centre.value + half
    return (low, high) if widest is None else (max(-widest, low), min(widest, high))


def _p_above(difference: Estimate, df: float, limit: float, most_negative: float | None) -> float | None:
    """P(such a difference or a greater one) if the true one were ``limit``."""
    if difference.value is None or difference.se is None:
        return None
    if difference.se > 0.0:
        return student_tail((difference.value - limit) / difference.se, df)
    if most_negative is None:
        return None
    if difference.value <= limit:
        return 1.0
    likeness = max(0.0, limit - most_negative) / (difference.value - most_negative)
    return math.pow(likeness, difference.clusters)


def mcnemar(
    baseline: Sequence[bool], candidate: Sequence[bool], *, clusters: Sequence[Hashable] | None = None
) -> McNemar:
    """Exact test of passes gained against passes lost.

    Without clusters this is McNemar's exact test (McNemar 1947): binomial, two-sided. With clusters, the signs of whole
    clusters are exchanged instead of those of tasks (randomisation test, Fisher 1935), with all sign patterns counted.
    With repeats, where a pass is a share, use `compare`.

    Raises:
        ValueError: The arguments differ in length.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"McNemar's test needs the same tasks twice, not {len(baseline)} and {len(candidate)} values")
    changes = [int(after) - int(before) for before, after in zip(baseline, candidate, strict=True)]
    sums: dict[Hashable, int] = defaultdict(int)
    for name, change in zip(cluster_names(clusters, len(changes)), changes, strict=True):
        sums[name] += change
    return McNemar(changes.count(1), changes.count(-1), _sign_flip_p([total for total in sums.values() if total]))


def _sign_flip_p(sums: Sequence[int]) -> float:
    """Share of sign patterns whose sum is at least as far from 0 as the one seen."""
    ways: dict[int, int] = {0: 1}
    for size, count in Counter(map(abs, sums)).items():
        choices = [(size * (2 * positive - count), math.comb(count, positive)) for positive in range(count + 1)]
        grown: dict[int, int] = defaultdict(int)
        for total, number in ways.items():
            for step, chosen in choices:
                grown[total + step] += number * chosen
        ways = grown
    seen = abs(sum(sums))
    return sum(number for total, number in ways.items() if abs(total) >= seen) / (1 << len(sums))


def flips(baseline: Mapping[str, float], candidate: Mapping[str, float], *, pass_at: float | None = None) -> list[Flip]:
    """Tasks that changed, the largest change first.

    Args:
        baseline: Score by task id in the first run.
        candidate: The same for the second run. Tasks that only one run has are left out.
        pass_at: Where given, only tasks that crossed this mark, in either direction; else all whose score changed.
    """
    shared = [Flip(task, before, candidate[task]) for task, before in baseline.items() if task in candidate]
    changed = [
        flip
        for flip in shared
        if (flip.change != 0 if pass_at is None else (flip.baseline >= pass_at) != (flip.candidate >= pass_at))
    ]
    return sorted(changed, key=lambda flip: (-abs(flip.change), flip.task))


def minimal_detectable_difference(
    sd: float, n: int, *, alpha: float = 0.05, power: float = 0.80, sides: int = 1
) -> float:
    """Smallest true difference that a test on n tasks would find with the given power.

    Source: (z of 1 - alpha / sides, plus z of power) * sd / sqrt(n); Miller 2024, arXiv 2411.00640. With the
    defaults the factor is 2.486.

    Args:
        sd: Standard deviation of the differences, in units of the score, clusters taken into account
            (`Comparison.sd`).
        n: Number of tasks, at least 1.
        alpha: Error probability of the test.
        power: Probability of finding the difference.
        sides: 1 for "is it worse", 2 for "is it different".
    """
    return (normal_quantile(1.0 - alpha / sides) + normal_quantile(power)) * sd / math.sqrt(n)


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for their number, in the given order.

    The chance of any false alarm among them stays below the level, whatever their dependence. Source: Holm,
    Scandinavian Journal of Statistics 6 (1979) 65.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
