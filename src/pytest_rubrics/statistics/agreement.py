"""Judges against each other, and against labels.

Verdicts on one answer come from one reading of it, so they are clustered by task: a panel that agrees on 17 criteria of
one answer has not agreed 17 independent times.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pytest_rubrics.statistics.distributions import student_quantile
from pytest_rubrics.statistics.intervals import (
    Estimate,
    check,
    cluster_names,
    clustered_mean,
    effective_size,
    mean,
    score_interval,
)

Sums: TypeAlias = Mapping[Hashable, float]
"""Sums over units, of which a coefficient is made; a cluster is taken away by subtraction."""

Disagreement: TypeAlias = Callable[[Sums], tuple[float, float]]
"""Observed and expected disagreement, 0 to 1, from such sums."""


class LabelAgreement(NamedTuple):
    """Verdicts measured against labels. A rate is undefined (value None) where no label of its kind exists.

    Attributes:
        accuracy: Share of verdicts equal to the label.
        true_positive_rate: Share of hits among what is labelled a hit.
        true_negative_rate: Share of misses among what is labelled a miss.
        balanced_accuracy: Mean of the two rates.
    """

    accuracy: Estimate
    true_positive_rate: Estimate
    true_negative_rate: Estimate
    balanced_accuracy: Estimate


class Bin(NamedTuple):
    """One bin of a reliability diagram.

    Attributes:
        low: Lowest probability of the bin, included.
        high: Highest, excluded except in the last bin.
        mean_probability: Mean of the predicted probabilities in it.
        hit_share: Share labelled a hit, with its interval.
    """

    low: float
    high: float
    mean_probability: float
    hit_share: Estimate


class Calibration(NamedTuple):
    """How well predicted probabilities of a hit match the labels.

    Attributes:
        brier: Mean squared distance between probability and label; 0 is best, 0.25 is what a constant 0.5 gives.
        expected_calibration_error: Mean distance between predicted and true share over the bins, weighted by their
            size; None without values. It is never negative, so chance alone puts it above 0 in small samples.
        bins: The bins that hold a value.
    """

    brier: Estimate
    expected_calibration_error: float | None
    bins: tuple[Bin, ...]


def cohen_kappa(
    first: Sequence[Hashable], second: Sequence[Hashable], *, clusters: Sequence[Hashable] | None = None
) -> Estimate:
    """Cohen's kappa of two raters: agreement beyond what their own shares would give by chance.

    Source: Cohen, Educational and Psychological Measurement 20 (1960) 37. Interval: see `_chance_corrected`.

    Returns:
        The estimate; its value is None if there are no ratings, or both raters know only one category.

    Raises:
        ValueError: The arguments differ in length.
    """
    if len(first) != len(second):
        raise ValueError(f"two raters need the same units, not {len(first)} and {len(second)} ratings")
    categories = {*first, *second}

    def disagreement(sums: Sums) -> tuple[float, float]:
        n = sums["n"]
        by_chance = math.fsum(sums.get(("first", c), 0.0) * sums.get(("second", c), 0.0) for c in categories)
        return sums["unlike"] / n, 1.0 - by_chance / n**2

    units: list[Sums] = [
        {"n": 1.0, "unlike": float(a != b), ("first", a): 1.0, ("second", b): 1.0}
        for a, b in zip(first, second, strict=True)
    ]
    return _chance_corrected(units, clusters, disagreement)


def fleiss_kappa(votes: Sequence[Sequence[Hashable]], *, clusters: Sequence[Hashable] | None = None) -> Estimate:
    """Fleiss' kappa of several raters, the same number for every unit.

    Source: Fleiss, Psychological Bulletin 76 (1971) 378. Interval: see `_chance_corrected`.

    Args:
        votes: For each unit, the category that each rater chose; who chose it does not matter.
        clusters: The cluster of each unit.

    Raises:
        ValueError: Units differ in their number of votes, or have fewer than two.
    """
    numbers = {len(unit) for unit in votes}
    if len(numbers) > 1 or numbers & {0, 1}:
        raise ValueError(
            f"Fleiss' kappa needs the same number of votes, two or more, for every unit, not {sorted(numbers)}"
        )

    def disagreement(sums: Sums) -> tuple[float, float]:
        return sums["unlike"] / sums["n"], 1.0 - _squares(sums) / sums["n"] ** 2

    return _chance_corrected([_nominal_sums(unit) for unit in votes], clusters, disagreement)


def krippendorff_alpha(
    units: Sequence[Sequence[Hashable | None]],
    *,
    level: Literal["nominal", "interval"] = "nominal",
    clusters: Sequence[Hashable] | None = None,
) -> Estimate:
    """Krippendorff's alpha of any number of raters, with ratings missing.

    Source: Krippendorff, Computing Krippendorff's Alpha-Reliability, University of Pennsylvania 2011. Interval: see
    `_chance_corrected`.

    Args:
        units: For each unit its ratings, None where a rater gave none. Units with fewer than two are left out.
        level: ``nominal`` for categories, ``interval`` for numbers, which disagree by their squared distance.
        clusters: The cluster of each unit.

    Raises:
        ValueError: A rating is not a finite number at the interval level, or the arguments differ in length.
    """
    names = cluster_names(clusters, len(units))
    given = [[rating for rating in unit if rating is not None] for unit in units]
    paired = [(name, unit) for name, unit in zip(names, given, strict=True) if len(unit) > 1]
    owners = [name for name, _ in paired]
    ratings = [unit for _, unit in paired]
    if level == "nominal":
        return _chance_corrected([_nominal_sums(unit) for unit in ratings], owners, _nominal_disagreement)
    return _chance_corrected(_interval_sums(ratings), owners, _interval_disagreement)


def _nominal_sums(unit: Sequence[Hashable]) -> Sums:
    counts = Counter(unit)
    n = len(unit)
    unlike = (n * n - sum(count * count for count in counts.values())) / (n - 1)
    return {"n": float(n), "unlike": unlike, **{("category", c): float(count) for c, count in counts.items()}}


def _squares(sums: Sums) -> float:
    return math.fsum(count**2 for key, count in sums.items() if isinstance(key, tuple))


def _nominal_disagreement(sums: Sums) -> tuple[float, float]:
    n = sums["n"]
    return sums["unlike"] / n, (n * n - _squares(sums)) / (n * (n - 1.0))


def _interval_sums(units: Sequence[Sequence[Hashable]]) -> list[Sums]:
    """Sums of the ratings, scaled to 0 to 1 so that squared distances lie there too; alpha does not depend on it."""
    numbers = [[_number(rating) for rating in unit] for unit in units]
    check([number for unit in numbers for number in unit], None)
    lowest = min((number for unit in numbers for number in unit), default=0.0)
    width = max((number for unit in numbers for number in unit), default=0.0) - lowest or 1.0
    scaled = [[(number - lowest) / width for number in unit] for unit in numbers]
    return [
        {
            "n": float(len(unit)),
            "unlike": _squared_distances(len(unit), math.fsum(unit), math.fsum(x * x for x in unit)) / (len(unit) - 1),
            "sum": math.fsum(unit),
            "squares": math.fsum(x * x for x in unit),
        }
        for unit in scaled
    ]


def _number(rating: Hashable) -> float:
    if isinstance(rating, int | float):
        return float(rating)
    raise ValueError(f"the interval level needs numbers, not {rating!r}")


def _squared_distances(n: float, total: float, squares: float) -> float:
    """Sum of (x - y) ** 2 over all ordered pairs of n numbers."""
    return max(0.0, 2.0 * n * squares - 2.0 * total**2)


def _interval_disagreement(sums: Sums) -> tuple[float, float]:
    n = sums["n"]
    return sums["unlike"] / n, _squared_distances(n, sums["sum"], sums["squares"]) / (n * (n - 1.0))


def _chance_corrected(
    units: Sequence[Sums], clusters: Sequence[Hashable] | None, disagreement: Disagreement
) -> Estimate:
    """The coefficient 1 - observed / expected disagreement, with its interval.

    The standard error is the delete-one-cluster jackknife's (Efron and Stein 1981): unlike a bootstrap it draws
    nothing. The interval is the score interval of the observed agreement that gives this coefficient, with the expected
    disagreement as it is; so it has a width where all agree, and stays below 1.
    """
    names = cluster_names(clusters, len(units))
    by_cluster: dict[Hashable, dict[Hashable, float]] = defaultdict(lambda: defaultdict(float))
    total: dict[Hashable, float] = defaultdict(float)
    for name, unit in zip(names, units, strict=True):
        for key, number in unit.items():
            by_cluster[name][key] += number
            total[key] += number
    count = len(by_cluster)
    value = _coefficient(total, disagreement)
    undefined = Estimate(value, None, None, len(units), count, None)
    if value is None or count < 2:
        return undefined
    rest = [_coefficient(_without(total, part), disagreement) for part in by_cluster.values()]
    replicates = [replicate for replicate in rest if replicate is not None]
    if len(replicates) < count:
        return undefined
    centre = math.fsum(replicates) / count
    variance = (count - 1) / count * math.fsum((replicate - centre) ** 2 for replicate in replicates)
    expected = disagreement(total)[1]
    agreement = 1.0 - (1.0 - value) * expected
    size = effective_size(agreement, variance * expected**2, count)
    low, high = score_interval(agreement, size, student_quantile(0.975, count - 1))
    low, high = (max(-1.0, 1.0 - (1.0 - end) / expected) for end in (low, high))
    return Estimate(value, low, high, len(units), count, math.sqrt(variance))


def _without(total: Sums, part: Sums) -> Sums:
    return {key: number - part.get(key, 0.0) for key, number in total.items()}


def _coefficient(sums: Sums, disagreement: Disagreement) -> float | None:
    if sums.get("n", 0.0) <= 0.0:
        return None
    observed, expected = disagreement(sums)
    return None if expected <= 1e-12 else 1.0 - observed / expected


def against_labels(
    verdicts: Sequence[bool], labels: Sequence[bool], *, clusters: Sequence[Hashable] | None = None
) -> LabelAgreement:
    """Accuracy, the two rates and their mean, of hit-or-miss verdicts against labels, each with its interval.

    Intervals: `mean` with bounds (0, 1); balanced accuracy is the macro mean over the two labels.

    Raises:
        ValueError: The arguments differ in length.
    """
    if len(verdicts) != len(labels):
        raise ValueError(f"{len(verdicts)} verdicts need as many labels, not {len(labels)}")
    names = cluster_names(clusters, len(verdicts))
    correct = [float(bool(verdict) == bool(label)) for verdict, label in zip(verdicts, labels, strict=True)]

    def rate(wanted: bool) -> Estimate:
        chosen = [index for index, label in enumerate(labels) if bool(label) == wanted]
        return _share([correct[index] for index in chosen], [names[index] for index in chosen])

    both = any(labels) and not all(labels)
    balanced = mean(correct, clusters=names, domains=[bool(label) for label in labels], bounds=(0.0, 1.0))
    undefined = balanced._replace(value=None, low=None, high=None, se=None)
    return LabelAgreement(_share(correct, names), rate(True), rate(False), balanced if both else undefined)


def _share(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    return mean(values, clusters=clusters, bounds=(0.0, 1.0))


def auc(scores: Sequence[float], labels: Sequence[bool], *, clusters: Sequence[Hashable] | None = None) -> Estimate:
    """Area under the ROC curve: the chance that a labelled hit scores above a labelled miss, ties counting half.

    Its variance is that of DeLong et al. (Biometrics 44 (1988) 837), summed by cluster as in Obuchowski (Biometrics 53
    (1997) 567); the interval is the score interval on the effective size.

    Returns:
        The estimate; its value is None unless there are both hits and misses.

    Raises:
        ValueError: A score is not finite, or the arguments differ in length.
    """
    check(scores, None)
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} scores need as many labels, not {len(labels)}")
    names = cluster_names(clusters, len(scores))
    sides = [bool(label) for label in labels]
    hits = sorted(score for score, side in zip(scores, sides, strict=True) if side)
    misses = sorted(score for score, side in zip(scores, sides, strict=True) if not side)
    undefined = Estimate(None, None, None, len(scores), len(set(names)), None)
    if not hits or not misses:
        return undefined
    wins = [
        _rank(score, misses) / len(misses) if side else 1.0 - _rank(score, hits) / len(hits)
        for score, side in zip(scores, sides, strict=True)
    ]
    # The mean win of the hits and that of the misses both are the area, and their errors add up instead of averaging.
    centre = clustered_mean(wins, clusters=names, domains=sides)
    assert centre is not None
    if centre.variance is None:
        return undefined._replace(value=centre.value)
    variance = 4.0 * centre.variance
    harmonic_mean = centre.size / 2.0  # of the clusters that hold a hit and of those that hold a miss
    size = effective_size(centre.value, variance, harmonic_mean)
    low, high = score_interval(centre.value, size, student_quantile(0.975, centre.df))
    return undefined._replace(value=centre.value, low=low, high=high, se=math.sqrt(variance))


def _rank(score: float, others: Sequence[float]) -> float:
    """How many of the sorted others lie below, ties counting half."""
    return (bisect_left(others, score) + bisect_right(others, score)) / 2.0


def calibration(
    probabilities: Sequence[float],
    labels: Sequence[bool],
    *,
    bins: int = 10,
    clusters: Sequence[Hashable] | None = None,
) -> Calibration:
    """Brier score, reliability bins of equal width, and expected calibration error.

    Source: Brier, Monthly Weather Review 78 (1950) 1; Naeini, Cooper and Hauskrecht 2015 (AAAI) for the error.

    Raises:
        ValueError: A probability is outside 0 to 1, or the arguments differ in length.
    """
    check(probabilities, (0.0, 1.0))
    if len(probabilities) != len(labels):
        raise ValueError(f"{len(probabilities)} probabilities need as many labels, not {len(labels)}")
    names = cluster_names(clusters, len(labels))
    squares = [(probability - label) ** 2 for probability, label in zip(probabilities, labels, strict=True)]
    members: dict[int, list[int]] = defaultdict(list)
    for index, probability in enumerate(probabilities):
        members[min(bins - 1, int(probability * bins))].append(index)
    filled = []
    for number, indices in sorted(members.items()):
        centre = math.fsum(probabilities[index] for index in indices) / len(indices)
        hits = _share([float(labels[index]) for index in indices], [names[index] for index in indices])
        filled.append(Bin(number / bins, (number + 1) / bins, centre, hits))
    error = math.fsum(b.hit_share.n * abs(b.mean_probability - (b.hit_share.value or 0.0)) for b in filled)
    return Calibration(_share(squares, names), error / len(labels) if labels else None, tuple(filled))


def leniency(
    verdicts: Mapping[str, Sequence[bool | None]], *, clusters: Sequence[Hashable] | None = None
) -> dict[str, Estimate]:
    """Share of criteria that each member of a panel marks as hit, with its interval.

    Args:
        verdicts: By member, one verdict a criterion, None where it gave none.
        clusters: The cluster of each criterion, the same for all members.

    Raises:
        ValueError: The arguments differ in length.
    """
    shares = {}
    for member, own in verdicts.items():
        names = cluster_names(clusters, len(own))
        given = [(float(hit), name) for hit, name in zip(own, names, strict=True) if hit is not None]
        shares[member] = _share([hit for hit, _ in given], [name for _, name in given])
    return shares
