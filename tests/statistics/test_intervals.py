from __future__ import annotations

import importlib
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_rubrics.statistics.distributions import student_quantile
from pytest_rubrics.statistics.intervals import (
    Estimate,
    effective_size,
    exclusion_bounds,
    mean,
    score_interval,
)

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=40)
UNIT = (0.0, 1.0)


def approx(estimate: Estimate) -> Any:
    return tuple(part if part is None else pytest.approx(part, rel=1e-9, abs=1e-9) for part in estimate)


def test_nothing_is_drawn_and_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from pytest_rubrics.statistics import intervals, repeats, comparison, agreement;"
        "print([name for name in ('numpy', 'scipy', 'random', 'pandas') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert out.stdout.strip() == "[]"


class TestPublishedExamples:
    @pytest.mark.parametrize(
        ("hits", "n", "low", "high"),
        [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
    )
    def test_wilson_intervals_of_newcombe_1998(self, hits: int, n: int, low: float, high: float) -> None:
        assert score_interval(hits / n, n, 1.959964) == pytest.approx((low, high), abs=5e-5)

    def test_t_interval_of_a_textbook_sample(self) -> None:
        # Darwin's maize: fifteen differences in eighths of an inch, mean 20.93, se 9.746 (Fisher 1935, section 17).
        darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
        found = mean(darwin)
        assert found.value == pytest.approx(20.933, abs=5e-4)
        assert found.se == pytest.approx(9.746, abs=5e-4)
        assert found.interval == pytest.approx((0.03, 41.84), abs=5e-3)


class TestAgainstStatsmodels:
    @pytest.mark.parametrize("seed", range(5))
    def test_clustered_standard_error_and_interval(self, seed: int) -> None:
        regression = pytest.importorskip("statsmodels.regression.linear_model")
        source = random.Random(seed)
        clusters = [source.randrange(25) for _ in range(80)]
        effects = [source.gauss(0, 1) for _ in range(25)]
        values = [effects[cluster] + source.gauss(0, 1) for cluster in clusters]
        # statsmodels' correction is G / (G - 1) * (N - 1) / (N - k), which for a mean (k = 1) is G / (G - 1).
        fit = regression.OLS(values, [1.0] * 80).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
        found = mean(values, clusters=clusters)
        assert found.se == pytest.approx(fit.bse[0], rel=1e-9)
        assert found.interval == pytest.approx(tuple(fit.conf_int()[0]), rel=1e-9)

    def test_macro_mean_is_the_regression_on_domains(self) -> None:
        regression = pytest.importorskip("statsmodels.regression.linear_model")
        source = random.Random(7)
        domains = [index % 4 for index in range(80)]
        values = [domain / 10 + source.random() for domain in domains]
        dummies = [[float(domain == other) for other in range(4)] for domain in domains]
        # Domains of one size: White's covariance with the correction n / (n - k) is n_d / (n_d - 1) in every domain.
        fit = regression.OLS(values, dummies).fit(cov_type="HC1")
        contrast = fit.t_test([0.25] * 4)
        found = mean(values, domains=domains)
        assert found.value == pytest.approx(contrast.effect[0], rel=1e-9)
        assert found.se == pytest.approx(contrast.sd[0][0], rel=1e-9)


class TestMean:
    @given(values=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40))
    def test_alone_every_task_gives_the_usual_t_interval(self, values: list[float]) -> None:
        n, centre = len(values), math.fsum(values) / len(values)
        sd = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1))
        assume(sd > 1e-6)
        half = student_quantile(0.975, n - 1) * sd / math.sqrt(n)
        assert mean(values) == approx(Estimate(centre, centre - half, centre + half, n, n, sd / math.sqrt(n)))

    @given(values=SCORES, clusters=st.data())
    def test_the_interval_holds_the_value_and_stays_in_bounds(
        self, values: list[float], clusters: st.DataObject
    ) -> None:
        names = clusters.draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values)))
        found = mean(values, clusters=names, bounds=UNIT)
        assert found.clusters == len(set(names))
        assert (found.interval is None) == (found.clusters < 2)
        if found.low is not None and found.high is not None and found.value is not None:
            assert 0.0 <= found.low <= found.value <= found.high <= 1.0
            assert found.low < found.high

    @given(values=st.lists(st.floats(0, 1), min_size=2, max_size=30), bounds=st.sampled_from([UNIT, None]))
    def test_a_second_copy_of_each_task_in_its_cluster_adds_nothing(
        self, values: list[float], bounds: tuple[float, float] | None
    ) -> None:
        names = list(range(len(values)))
        once, twice = mean(values, bounds=bounds), mean(values * 2, clusters=names * 2, bounds=bounds)
        assert twice == approx(once._replace(n=2 * len(values)))

    @given(values=st.lists(st.floats(0, 1), min_size=2, max_size=30), seed=st.integers())
    def test_the_order_of_tasks_does_not_matter(self, values: list[float], seed: int) -> None:
        pairs = [(value, index // 2) for index, value in enumerate(values)]
        shuffled = random.Random(seed).sample(pairs, len(pairs))

        def estimate(rows: list[tuple[float, int]]) -> Estimate:
            return mean([value for value, _ in rows], clusters=[name for _, name in rows], bounds=UNIT)

        assert estimate(shuffled) == approx(estimate(pairs))

    @given(values=st.lists(st.floats(0, 1), min_size=2, max_size=30))
    def test_other_units_give_the_same_interval(self, values: list[float]) -> None:
        found = mean(values, bounds=UNIT)
        scaled = mean([20 * value - 10 for value in values], bounds=(-10.0, 10.0))
        assert found.interval is not None
        assert scaled.interval == pytest.approx(tuple(20 * end - 10 for end in found.interval), abs=1e-6)

    @given(values=SCORES)
    def test_one_domain_is_the_pooled_mean(self, values: list[float]) -> None:
        assert mean(values, domains=["law"] * len(values), bounds=UNIT) == approx(mean(values, bounds=UNIT))

    def test_every_domain_counts_the_same(self) -> None:
        found = mean([1.0, 1.0, 1.0, 0.0, 0.2, 0.4], domains=["a"] * 4 + ["b"] * 2)
        assert found.value == pytest.approx((0.75 + 0.3) / 2)
        assert found.se == pytest.approx(math.sqrt(0.0625 + 0.01) / 2)

    def test_positively_correlated_pairs_widen_the_interval(self) -> None:
        values = [0.1, 0.9, 0.4, 0.6, 0.2, 0.8] * 2
        single, paired = mean(values), mean(values, clusters=list(range(6)) * 2)
        assert single.se is not None
        assert paired.se is not None
        assert paired.se > 1.3 * single.se

    @given(passes=st.lists(st.booleans(), min_size=2, max_size=60))
    def test_passes_of_single_tasks_give_wilsons_interval_with_the_t_quantile(self, passes: list[bool]) -> None:
        n, share = len(passes), sum(passes) / len(passes)
        expected = score_interval(share, n, student_quantile(0.975, n - 1))
        assert mean(passes, bounds=UNIT).interval == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_all_passed_and_none_passed_leave_room_for_doubt(self, share: float) -> None:
        low, high = mean([share] * 20, bounds=UNIT).interval or (math.nan, math.nan)
        assert high - low == pytest.approx(0.18, abs=0.005)
        assert share in {low, high}

    def test_equal_scores_inside_the_bounds_leave_room_for_doubt(self) -> None:
        low, high = mean([0.5] * 20, bounds=UNIT).interval or (math.nan, math.nan)
        assert 0.45 < low < 0.5 < high < 0.55

    def test_equal_scores_without_bounds_have_no_interval(self) -> None:
        assert mean([0.1] * 7) == approx(Estimate(0.1, None, None, 7, 7, 0.0))

    def test_no_values(self) -> None:
        assert mean([], bounds=UNIT) == Estimate(None, None, None, 0, 0, None)

    def test_one_value(self) -> None:
        assert mean([0.4], bounds=UNIT) == Estimate(0.4, None, None, 1, 1, None)

    def test_one_cluster(self) -> None:
        assert mean([0.4, 0.6], clusters=[5, 5]) == Estimate(0.5, None, None, 2, 1, None)

    def test_a_domain_of_one_task_allows_no_interval(self) -> None:
        assert mean([0.4, 0.6, 0.8], domains=["a", "a", "b"]).interval is None

    @pytest.mark.parametrize("absent", [None, ""])
    def test_a_task_without_a_cluster_stands_alone(self, absent: str | None) -> None:
        values = [0.1, 0.5, 0.9, 0.3]
        assert mean(values, clusters=[absent] * 4) == mean(values)

    def test_a_cluster_numbered_0_is_a_cluster(self) -> None:
        assert mean([0.1, 0.5, 0.9], clusters=[0, 0, 1]).clusters == 2

    def test_a_higher_confidence_is_wider(self) -> None:
        values = [0.1, 0.5, 0.9, 0.3]
        usual, wide = mean(values, bounds=UNIT), mean(values, bounds=UNIT, confidence=0.99)
        assert usual.interval is not None
        assert wide.interval is not None
        assert wide.interval[0] < usual.interval[0] < usual.interval[1] < wide.interval[1]

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_what_is_no_number_is_refused(self, value: float) -> None:
        with pytest.raises(ValueError, match=f"value 2 of 2 is {value}: leave out what has no score"):
            mean([0.5, value])

    def test_a_value_outside_the_bounds_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"value 1 of 1 is 70\.0, outside the bounds 0\.0 to 1\.0"):
            mean([70.0], bounds=UNIT)

    def test_there_must_be_a_cluster_and_a_domain_for_every_value(self) -> None:
        with pytest.raises(ValueError, match="2 values need 2 clusters, not 1"):
            mean([0.1, 0.2], clusters=[1])
        with pytest.raises(ValueError, match="2 values need 2 domains, not 1"):
            mean([0.1, 0.2], domains=[1])


class TestEffectiveSize:
    @given(hits=st.integers(0, 50), misses=st.integers(0, 50))
    def test_yes_no_values_are_worth_their_number(self, hits: int, misses: int) -> None:
        n = hits + misses
        assume(n >= 2)
        share = hits / n
        assert effective_size(share, share * (1 - share) / (n - 1), n) == pytest.approx(n, rel=1e-9)

    def test_halves_that_always_agree_are_worth_half(self) -> None:
        assert effective_size(0.4, 0.4 * 0.6 / 99, 100) == pytest.approx(100, rel=1e-9)

    def test_scores_spread_less_than_passes_and_are_worth_more(self) -> None:
        assert effective_size(0.5, 0.25**2 / 200, 200) == pytest.approx(200 * 0.25 / 0.25**2, rel=0.02)


class TestExclusionBounds:
    def test_without_exclusions_both_are_the_mean(self) -> None:
        assert exclusion_bounds([0.2, 0.4]) == pytest.approx((0.3, 0.3, 1.0, 2, 0))

    def test_each_excluded_grade_moves_the_mean_by_its_range(self) -> None:
        found = exclusion_bounds([0.2, None, 0.4, None])
        assert found == pytest.approx((0.15, 0.65, 0.5, 2, 2))

    def test_a_repeat_weighs_a_part_of_its_task(self) -> None:
        found = exclusion_bounds([0.5, None, 0.25, 0.25], tasks=["a", "a", "b", "b"])
        assert found == pytest.approx((0.25, 0.5, 0.75, 3, 1))

    def test_the_range_can_differ_by_grade(self) -> None:
        found = exclusion_bounds([None, None], low=[-0.5, -0.1], high=1.0)
        assert found == pytest.approx((-0.3, 1.0, 0.0, 0, 2))

    def test_no_grades(self) -> None:
        assert exclusion_bounds([]) == (None, None, None, 0, 0)

    @given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=20), excluded=st.integers(0, 20))
    def test_the_mean_of_what_is_graded_lies_between(self, scores: list[float], excluded: int) -> None:
        found = exclusion_bounds([*scores, *[None] * excluded])
        assert found.low is not None
        assert found.high is not None
        assert found.low - 1e-12 <= sum(scores) / len(scores) <= found.high + 1e-12
        assert found.high - found.low == pytest.approx(excluded / (len(scores) + excluded))

    def test_lengths_must_agree(self) -> None:
        with pytest.raises(ValueError, match="shorter"):
            exclusion_bounds([0.1, None], low=[0.0])


def cell(*parts: object) -> str:
    return "-".join(str(part) for part in parts)


class TestCoverage:
    """A small part of the grid of ``perf/interval_coverage.py``, 2,000 simulated benchmarks a cell."""

    RUNS = 2000
    SMALL_NEAR_A_BOUND = (0.93, 0.99)  # few tasks, nearly all at one bound: on the safe side
    BAND = (0.93, 0.97)

    @pytest.mark.parametrize("rate", [0.05, 0.365, 0.7, 0.95])
    @pytest.mark.parametrize("paired", [False, True])
    @pytest.mark.parametrize("n", [20, 40, 200])
    def test_pass_rates(self, n: int, paired: bool, rate: float) -> None:
        study, rng = study_and_rng(n)
        sample = study.rate_sample(rng, self.RUNS, n, paired, rate, 1)
        low, high = self.BAND if n >= 200 else self.SMALL_NEAR_A_BOUND
        assert low <= study.coverage(sample, study.bounded_interval)[0] <= high

    @pytest.mark.parametrize(("n", "paired", "rate"), [(40, True, 0.05), (40, False, 0.365), (200, True, 0.7)])
    def test_pass_rates_with_repeats(self, n: int, paired: bool, rate: float) -> None:
        study, rng = study_and_rng(n)
        sample = study.rate_sample(rng, self.RUNS, n, paired, rate, 4)
        low, high = self.BAND if n >= 200 else self.SMALL_NEAR_A_BOUND
        assert low <= study.coverage(sample, study.bounded_interval)[0] <= high

    @pytest.mark.parametrize(
        ("n", "paired", "model", "band"),
        [
            (20, False, "very weak", SMALL_NEAR_A_BOUND),
            (20, True, "strong", BAND),
            (40, False, "middling", BAND),
            (40, True, "good", BAND),
            (200, True, "weak", BAND),
            (400, False, "good", BAND),
        ],
        ids=cell,
    )
    def test_mean_scores(self, n: int, paired: bool, model: str, band: tuple[float, float]) -> None:
        study, rng = study_and_rng(n)
        sample = study.mean_sample(rng, self.RUNS, n, paired, study.ABILITIES[model])
        assert band[0] <= study.coverage(sample, study.bounded_interval)[0] <= band[1]

    def test_the_usual_interval_of_a_very_weak_model_falls_far_short(self) -> None:
        study, rng = study_and_rng(20)
        sample = study.mean_sample(rng, self.RUNS, 20, True, study.ABILITIES["very weak"])
        assert study.coverage(sample, study.t_interval)[0] < 0.85

    def test_pairs_taken_for_single_tasks_would_fall_short(self) -> None:
        study, rng = study_and_rng(200)
        sample = study.rate_sample(rng, self.RUNS, 200, True, 0.5, 1)

        def ignoring(values: Sequence[float], clusters: Sequence[int]) -> Estimate:
            return mean(values, bounds=UNIT)

        assert study.coverage(sample, ignoring)[0] < 0.925 < 0.93 <= study.coverage(sample, study.bounded_interval)[0]


def study_and_rng(seed: int) -> tuple[Any, Any]:
    numpy = pytest.importorskip("numpy")
    return importlib.import_module("perf.interval_coverage"), numpy.random.default_rng(seed)
