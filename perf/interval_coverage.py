"""How often the 95 % intervals hold the truth, and the arithmetic of gates: every figure of docs/statistics.md.

Run it as ``python perf/interval_coverage.py [means|rates|differences|agreement|gates]``; without a name it prints all
of them. Each line of the first four is one simulated benchmark, drawn 2,000 times (``--runs``): with that many, a true
95 % shows as 94 to 96 % in nineteen lines of twenty. What is below 93 % or above 97 % is marked with - or +. NumPy is
needed here, not in the package.

A simulated task has a difficulty. Its 13 rewards and 4 penalties are hit with a chance that depends on the difficulty
and on the model's ability; the score is their weighted sum over the positive weights, cut to 0 to 1. In a paired
benchmark 30 % of the tasks are second halves of a pair that shares most of its difficulty, as 120 of the 400 tasks of
$OneMillion-Bench are.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_rubrics.statistics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from pytest_rubrics.statistics.comparison import compare, minimal_detectable_difference
from pytest_rubrics.statistics.distributions import beta_cdf, binomial_cdf, normal_quantile, student_quantile
from pytest_rubrics.statistics.intervals import Estimate, clustered_mean, mean, score_interval

Floats = NDArray[np.float64]

SIZES = (20, 40, 200, 400)
RATES = (0.05, 0.365, 0.7, 0.95)
ABILITIES = {"very weak": -2.2, "weak": -1.2, "middling": -0.3, "good": 0.5, "strong": 1.3}
SHARED = 0.7  # of a task's difficulty, between the two halves of a pair


class Sample(NamedTuple):
    """Simulated benchmarks of one kind: a row of values each, the tasks' clusters, and the true mean."""

    values: Floats
    clusters: list[int]
    truth: float


def clusters_of(n: int, paired: bool) -> list[int]:
    """The cluster of each task: the last 30 % repeat the first ones if paired."""
    singles = n - int(0.3 * n) if paired else n
    return [task % singles for task in range(n)]


def difficulties(rng: np.random.Generator, runs: int, n: int, paired: bool) -> Floats:
    """Standard normal difficulty of each task, shared within pairs."""
    common = rng.standard_normal((runs, n))[:, clusters_of(n, paired)]
    return np.asarray(SHARED**0.5 * common + (1 - SHARED) ** 0.5 * rng.standard_normal((runs, n)))


def logistic(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def rubric_scores(rng: np.random.Generator, difficulty: Floats, ability: float) -> Floats:
    """Expert score of one answer a task."""
    weights = rng.integers(2, 11, (*difficulty.shape, 17)).astype(float)
    weights[..., :4] *= -1
    ease = (ability - difficulty)[..., None]
    chance = np.concatenate(
        [np.repeat(logistic(-1.0 - ease), 4, axis=-1), np.repeat(logistic(1.3 * ease), 13, axis=-1)], axis=-1
    )
    points = np.where(rng.random(weights.shape) < chance, weights, 0.0).sum(-1)
    return np.asarray(np.clip(points / np.where(weights > 0, weights, 0.0).sum(-1), 0.0, 1.0))


def mean_sample(rng: np.random.Generator, runs: int, n: int, paired: bool, ability: float) -> Sample:
    """Expert scores; the true mean is that of 400,000 further tasks."""
    values = np.vstack(
        [rubric_scores(rng, difficulties(rng, len(part), n, paired), ability) for part in _parts(runs, n)]
    )
    many = [rubric_scores(rng, difficulties(rng, 1, 20_000, False), ability).mean() for _ in range(20)]
    return Sample(values, clusters_of(n, paired), float(np.mean(many)))


def _parts(runs: int, n: int) -> list[NDArray[Any]]:
    return np.array_split(np.arange(runs), max(1, runs * n // 40_000))


def rate_sample(rng: np.random.Generator, runs: int, n: int, paired: bool, rate: float, repeats: int) -> Sample:
    """Passes, or shares of passes where 70 % of the variance of an answer is its task's."""
    difficulty = difficulties(rng, runs, n, paired)
    within = 0.0 if repeats == 1 else 0.3
    noise = rng.standard_normal((runs, n, repeats))
    answers = (1 - within) ** 0.5 * difficulty[..., None] + within**0.5 * noise
    return Sample((answers < normal_quantile(rate)).mean(-1), clusters_of(n, paired), rate)


def difference_sample(rng: np.random.Generator, runs: int, n: int, paired: bool, gained: float, lost: float) -> Sample:
    """Changes of pass or fail between two runs: 1 gained, -1 lost."""
    change = difficulties(rng, runs, n, paired)
    values = (change > -normal_quantile(gained)).astype(float) - (change < normal_quantile(lost))
    return Sample(values, clusters_of(n, paired), gained - lost)


def coverage(sample: Sample, interval: Callable[[Sequence[float], Sequence[int]], Estimate]) -> tuple[float, float]:
    """Share of the simulated benchmarks whose interval holds the truth, and its mean width."""
    estimates = [interval(row, sample.clusters) for row in sample.values.tolist()]
    ends = np.array([(e.low, e.high) if e.interval else (np.nan, np.nan) for e in estimates])
    held = (ends[:, 0] <= sample.truth + 1e-12) & (sample.truth - 1e-12 <= ends[:, 1])
    return float(held.mean()), float(np.nanmean(ends[:, 1] - ends[:, 0]))


def t_interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """The usual interval."""
    return mean(values, clusters=clusters)


def bounded_interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """The one that the package uses for scores and passes."""
    return mean(values, clusters=clusters, bounds=(0.0, 1.0))


def wilson_interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """Wilson's, with the normal quantile and the plain design effect."""
    share, size = _share_and_size(values, clusters)
    return Estimate(share, *score_interval(share, size, 1.959964), len(values), len(set(clusters)), None)


def clopper_pearson_interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """Clopper and Pearson's on the effective size of Korn and Graubard (1998)."""
    share, size = _share_and_size(values, clusters)
    size *= (student_quantile(0.975, len(values) - 1) / student_quantile(0.975, len(set(clusters)) - 1)) ** 2
    hits, misses = share * size, (1 - share) * size
    low = _beta_quantile(0.025, hits, misses + 1) if hits > 1e-9 else 0.0
    high = _beta_quantile(0.975, hits + 1, misses) if misses > 1e-9 else 1.0
    return Estimate(share, low, high, len(values), len(set(clusters)), None)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if beta_cdf(middle, a, b) < probability else (low, middle)
    return low


def logit_interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """The t interval of the log odds; where the variance is 0, Clopper and Pearson's bound."""
    found = mean(values, clusters=clusters)
    share, groups = found.value, len(set(clusters))
    assert share is not None
    unlike = 1 - 0.025 ** (1 / groups)
    if not found.se or not 0 < share < 1:
        return found._replace(low=share * (1 - unlike), high=share + unlike * (1 - share))
    half = student_quantile(0.975, groups - 1) * found.se / (share * (1 - share))
    odds = math.log(share / (1 - share))
    return found._replace(low=1 / (1 + math.exp(half - odds)), high=1 / (1 + math.exp(-half - odds)))


def _share_and_size(values: Sequence[float], clusters: Sequence[int]) -> tuple[float, float]:
    centre = clustered_mean(values, clusters=clusters)
    assert centre is not None
    share = centre.value
    return share, share * (1 - share) / centre.variance + 1 if centre.variance else centre.size


METHODS = {
    "t": t_interval,
    "Wilson": wilson_interval,
    "Clopper-P.": clopper_pearson_interval,
    "logit t": logit_interval,
    "chosen": bounded_interval,
}


def grid() -> Iterator[tuple[int, bool]]:
    """Sizes, single and paired."""
    yield from ((n, paired) for n in SIZES for paired in (False, True))


def print_means(rng: np.random.Generator, runs: int) -> None:
    """Mean expert score."""
    for name, ability in ABILITIES.items():
        example = mean_sample(rng, 50, 400, False, ability)
        at_zero, passed = (example.values == 0).mean(), (example.values >= 0.7).mean()
        print(f"\nMean score, {name} model: true mean {example.truth:.3f}, {at_zero:.0%} at 0, {passed:.0%} passed")
        print_methods((n, paired, mean_sample(rng, runs, n, paired, ability)) for n, paired in grid())


def print_rates(rng: np.random.Generator, runs: int) -> None:
    """Pass rate."""
    for repeats in (1, 4):
        for rate in RATES:
            print(f"\nPass rate, true {rate}, {repeats} answer(s) a task")
            print_methods((n, paired, rate_sample(rng, runs, n, paired, rate, repeats)) for n, paired in grid())


def print_methods(samples: Iterator[tuple[int, bool, Sample]]) -> None:
    """One line a sample: coverage of each method, then width of the chosen one."""
    print(f"{'tasks':>6} {'pairs':>6}" + "".join(f"{name:>12}" for name in METHODS) + f"{'width':>8}")
    for n, paired, sample in samples:
        found = [coverage(sample, method) for method in METHODS.values()]
        cells = "".join(f"{marked(held):>12}" for held, _ in found)
        print(f"{n:>6} {'yes' if paired else 'no':>6}{cells}{found[-1][1]:>8.3f}", flush=True)


def marked(held: float) -> str:
    """The coverage, marked where it is outside the band."""
    return f"{held:.3f}{' ' if 0.93 <= held <= 0.97 else '-' if held < 0.93 else '+'}"


def print_differences(rng: np.random.Generator, runs: int) -> None:
    """Paired differences."""

    def interval(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
        return compare([0.0] * len(values), values, clusters=clusters, bounds=(-1.0, 1.0)).difference

    print("\nDifference of two runs, pass or fail: t interval of `compare`")
    print(f"{'tasks':>6} {'pairs':>6} {'gained':>7} {'lost':>7} {'held':>8} {'width':>7}")
    for gained, lost in ((0.05, 0.05), (0.15, 0.15), (0.10, 0.05), (0.20, 0.10)):
        for n, paired in grid():
            held, width = coverage(difference_sample(rng, runs, n, paired, gained, lost), interval)
            print(
                f"{n:>6} {'yes' if paired else 'no':>6} {gained:>7} {lost:>7} {marked(held):>8} {width:>7.3f}",
                flush=True,
            )

    print("\nDifference of two runs, expert score (the same model, and one that is better by 0.4)")
    print(f"{'tasks':>6} {'pairs':>6} {'gain':>7} {'sd':>7} {'held':>8} {'width':>7}")
    for gain in (0.0, 0.4):
        for n, paired in grid():
            sample = score_difference_sample(rng, runs, n, paired, gain)
            held, width = coverage(sample, interval)
            sd = float(sample.values.std())
            print(
                f"{n:>6} {'yes' if paired else 'no':>6} {gain:>7} {sd:>7.3f} {marked(held):>8} {width:>7.3f}",
                flush=True,
            )


def score_difference_sample(rng: np.random.Generator, runs: int, n: int, paired: bool, gain: float) -> Sample:
    """Changes of the expert score on the same tasks."""

    def once(count: int, tasks: int, together: bool) -> Floats:
        difficulty = difficulties(rng, count, tasks, together)
        return rubric_scores(rng, difficulty, 0.5 + gain) - rubric_scores(rng, difficulty, 0.5)

    values = np.vstack([once(len(part), n, paired) for part in _parts(runs, n)])
    truth = float(np.mean([once(1, 20_000, False).mean() for _ in range(20)])) if gain else 0.0
    return Sample(values, clusters_of(n, paired), truth)


Votes = list[list[bool]]
Coefficient = Callable[[Votes, list[int]], Estimate]


def first_two(votes: Votes, owners: list[int]) -> Estimate:
    """Cohen's kappa of the first two judges."""
    return cohen_kappa([unit[0] for unit in votes], [unit[1] for unit in votes], clusters=owners)


COEFFICIENTS: dict[str, Coefficient] = {
    "Cohen's kappa": first_two,
    "Fleiss' kappa": lambda votes, owners: fleiss_kappa(votes, clusters=owners),
    "Krippendorff's alpha": lambda votes, owners: krippendorff_alpha(votes, clusters=owners),
}


def print_agreement(rng: np.random.Generator, runs: int) -> None:
    """Agreement of three judges."""
    print("\nAgreement of judges that read 5 criteria of each answer; errors partly shared within an answer")
    print(f"{'coefficient':>22} {'answers':>8} {'true':>7} {'held':>8} {'width':>7}")
    for error in (0.05, 0.2):
        for name, coefficient in COEFFICIENTS.items():
            many = votes_of(rng, 40_000, error)
            truth = coefficient(many, [0] * len(many)).value or 0.0
            for answers in (20, 40, 100):
                held, width = agreement_coverage(rng, runs, answers, error, truth, coefficient)
                print(f"{name:>22} {answers:>8} {truth:>7.3f} {marked(held):>8} {width:>7.3f}", flush=True)


def votes_of(rng: np.random.Generator, answers: int, error: float) -> Votes:
    """Votes of three judges on five criteria an answer; an answer raises or lowers hits and errors of all of them."""
    quality = rng.standard_normal((answers, 1))
    hit = 0.5 * quality + 0.75**0.5 * rng.standard_normal((answers, 5)) < 0.3
    slip = 0.5 * rng.standard_normal((answers, 1, 1)) + 0.75**0.5 * rng.standard_normal((answers, 5, 3))
    votes: Votes = (hit[..., None] ^ (slip < normal_quantile(error))).reshape(-1, 3).tolist()
    return votes


def agreement_coverage(
    rng: np.random.Generator, runs: int, answers: int, error: float, truth: float, coefficient: Coefficient
) -> tuple[float, float]:
    """Share of simulated panels whose interval holds the true coefficient, and its mean width."""
    owners = [unit // 5 for unit in range(5 * answers)]
    ends = np.array([coefficient(votes_of(rng, answers, error), owners)[1:3] for _ in range(runs)])
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()), float((ends[:, 1] - ends[:, 0]).mean())


def false_alarm(n: int, floor_percent: int = 70, rate: float = 0.72) -> float:
    """Chance that fewer than ``floor_percent`` of n tasks pass although the true pass rate is ``rate``."""
    needed = -(-floor_percent * n // 100)
    return binomial_cdf(needed - 1, n, rate)


def print_gates(rng: np.random.Generator, runs: int) -> None:
    """The arithmetic of gates; nothing is drawn."""
    del rng, runs
    print("\nA floor of 70 % on the pass rate of a model that truly passes 72 %; 95 % interval around 72 %;")
    print("smallest drop that a paired test finds with 80 % power (one-sided 5 %): pass or fail with 10, 20, 30 %")
    print("of the tasks changed, expert score with a standard deviation of the differences of .15 and .25")
    print(
        f"{'tasks':>6} {'fails floor':>12} {'interval':>16} {'10 %':>7} {'20 %':>7} {'30 %':>7} {'.15':>7} {'.25':>7}"
    )
    for n in (20, 50, 100, 200, 400, 1000):
        low, high = score_interval(0.72, n, student_quantile(0.975, n - 1))
        drops = [minimal_detectable_difference(sd, n) for sd in (0.1**0.5, 0.2**0.5, 0.3**0.5, 0.15, 0.25)]
        cells = "".join(f"{drop:>8.3f}" for drop in drops)
        print(f"{n:>6} {false_alarm(n):>12.3f} {f'{low:.3f} to {high:.3f}':>16}{cells}")
    print(f"\nChance that at least one of 10 domains fails a test at 5 % by chance alone: {1 - 0.95**10:.3f}")


SECTIONS = {
    "means": print_means,
    "rates": print_rates,
    "differences": print_differences,
    "agreement": print_agreement,
    "gates": print_gates,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="*", help=f"one or more of {', '.join(SECTIONS)}")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20260)
    options = parser.parse_args()
    for section in options.section or SECTIONS:
        SECTIONS[section](np.random.default_rng(options.seed), options.runs)
