from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_rubrics.statistics.comparison import (
    Comparison,
    Flip,
    McNemar,
    compare,
    flips,
    holm,
    mcnemar,
    minimal_detectable_difference,
)
from pytest_rubrics.statistics.distributions import binomial_cdf

UNIT = (0.0, 1.0)
PAIRS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30)


def runs_of(n: int, gain: float = 0.0) -> tuple[list[float], list[float]]:
    source = random.Random(n)
    baseline = [source.random() for _ in range(n)]
    return baseline, [min(1.0, max(0.0, score + gain + source.gauss(0, 0.15))) for score in baseline]


def compared(pairs: list[tuple[float, float]]) -> Comparison:
    return compare([before for before, _ in pairs], [after for _, after in pairs], bounds=UNIT)


class TestCompare:
    def test_students_sleep_data(self) -> None:
        # Student 1908: ten patients, two drugs; t = 4.0621 with 9 degrees of freedom, p = .002833.
        first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
        second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
        found = compare(first, second)
        assert found.difference.value == pytest.approx(1.58)
        assert found.difference.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)
        assert found.p_value == pytest.approx(0.002833, abs=5e-7)
        assert (found.better, found.worse, found.same) == (9, 0, 1)

    def test_pairs_of_translations_count_as_one(self) -> None:
        baseline, candidate = runs_of(30, 0.05)
        single = compare(baseline, candidate, bounds=UNIT)
        doubled = compare(baseline * 2, candidate * 2, clusters=list(range(30)) * 2, bounds=UNIT)
        assert doubled.difference[:3] == pytest.approx(single.difference[:3])
        assert doubled.p_value == pytest.approx(single.p_value)
        assert doubled.difference.clusters == 30

    @given(PAIRS)
    def test_exchanged_runs_give_the_mirror_image(self, pairs: list[tuple[float, float]]) -> None:
        there, back = compared(pairs), compared([(after, before) for before, after in pairs])
        assert there.difference.interval is not None
        assert back.difference.interval == pytest.approx(tuple(-end for end in there.difference.interval[::-1]))
        assert back.p_value == pytest.approx(there.p_value)
        assert (back.better, back.worse, back.same) == (there.worse, there.better, there.same)
        assert back.p_below(-0.1) == pytest.approx(there.p_above(0.1))

    @given(PAIRS)
    def test_p_value_and_interval_say_the_same(self, pairs: list[tuple[float, float]]) -> None:
        found = compared(pairs)
        assert found.p_value is not None
        assume(abs(found.p_value - 0.05) > 1e-6)
        low, high = found.difference.interval or (math.nan, math.nan)
        assert (found.p_value < 0.05) == (not low <= 0.0 <= high)

    @given(PAIRS, st.floats(-0.5, 0.5))
    def test_one_sided_interval_and_p_value_say_the_same(self, pairs: list[tuple[float, float]], limit: float) -> None:
        before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = compare(before, after, bounds=UNIT, confidence=0.9)
        above = found.p_above(limit)
        assert above is not None
        assume(abs(above - 0.05) > 1e-6)
        assert found.difference.low is not None
        assert (above < 0.05) == (found.difference.low > limit)

    def test_a_clear_loss_within_the_margin_is_not_inferior(self) -> None:
        baseline, candidate = runs_of(400, -0.03)
        found = compare(baseline, candidate, bounds=UNIT)
        assert found.p_value is not None
        assert found.p_value < 0.05
        assert (found.p_above(-0.10) or 0.0) < 0.001
        assert (found.p_above(-0.03) or 0.0) > 0.05

    def test_the_same_run_twice_shows_no_difference_and_keeps_some_doubt(self) -> None:
        scores = runs_of(40)[0]
        found = compare(scores, scores, bounds=UNIT)
        unseen = 1 - 0.025 ** (1 / 40)
        assert found.same == 40
        assert found.p_value == 1.0
        assert found.difference.interval == pytest.approx((-unseen, unseen))
        assert found.p_above(-0.05) == pytest.approx(0.95**40)

    def test_the_same_gain_everywhere_is_no_accident(self) -> None:
        found = compare([0.0] * 20, [1.0] * 20, bounds=UNIT)
        assert found.p_value == pytest.approx(2 * 0.5**20)

    def test_without_bounds_equal_differences_decide_nothing(self) -> None:
        found = compare([0.5] * 5, [0.75] * 5)
        assert found.difference.interval is None
        assert found.p_value is None
        assert found.p_above(-0.1) is None

    @pytest.mark.parametrize("n", [0, 1])
    def test_less_than_two_tasks_decide_nothing(self, n: int) -> None:
        found = compare([0.5] * n, [0.75] * n, bounds=UNIT)
        assert found.difference.value == (0.25 if n else None)
        assert found.difference.interval is None
        assert found.p_value is None
        assert found.sd is None

    def test_domains_of_different_size_weigh_the_same(self) -> None:
        found = compare([0.0] * 6, [0.2, 0.4, 0.2, 0.4, 0.8, 1.0], domains=["a"] * 4 + ["b"] * 2, bounds=UNIT)
        assert found.difference.value == pytest.approx((0.3 + 0.9) / 2)

    def test_runs_must_have_the_same_tasks(self) -> None:
        with pytest.raises(ValueError, match="the same tasks twice, not 1 and 2 values"):
            compare([0.1], [0.1, 0.2])

    def test_a_score_outside_the_bounds_is_refused(self) -> None:
        with pytest.raises(ValueError, match="outside the bounds"):
            compare([0.1, 0.2], [0.1, 1.2], bounds=UNIT)


def passes(gained: int, lost: int, same: int = 0) -> tuple[list[bool], list[bool]]:
    return [False] * gained + [True] * (lost + same), [True] * gained + [False] * lost + [True] * same


class TestMcNemar:
    def test_published_example(self) -> None:
        # 6 and 16 discordant pairs: exact p = .053 (Fagerland, Lydersen and Laake 2013 compare the variants).
        assert mcnemar(*passes(6, 16, 139)) == pytest.approx((6, 16, 0.0525), abs=5e-5)

    @given(st.integers(0, 40), st.integers(0, 40))
    def test_without_clusters_it_is_binomial(self, gained: int, lost: int) -> None:
        expected = min(1.0, 2 * binomial_cdf(min(gained, lost), gained + lost, 0.5))
        assert mcnemar(*passes(gained, lost, 3)).p_value == pytest.approx(expected)

    def test_statsmodels_agrees(self) -> None:
        tables = pytest.importorskip("statsmodels.stats.contingency_tables")
        assert mcnemar(*passes(9, 22, 50)).p_value == pytest.approx(tables.mcnemar([[50, 22], [9, 0]]).pvalue)

    def test_the_second_half_of_a_pair_adds_no_evidence(self) -> None:
        baseline, candidate = passes(2, 9, 10)
        twice = mcnemar(baseline * 2, candidate * 2, clusters=list(range(21)) * 2)
        assert twice == pytest.approx((4, 18, mcnemar(baseline, candidate).p_value))

    def test_changes_inside_a_cluster_cancel(self) -> None:
        assert mcnemar([True, False], [False, True], clusters=[1, 1]) == McNemar(1, 1, 1.0)

    def test_clusters_of_different_size_count_every_sign_pattern(self) -> None:
        # Sums 2, 1 and 1: patterns with a total of at least 4 either way are 2 of 8.
        baseline, candidate = passes(4, 0)
        assert mcnemar(baseline, candidate, clusters=["a", "a", "b", "c"]).p_value == 2 / 8

    def test_thousands_of_verdicts_do_not_overflow(self) -> None:
        assert 0.0 < mcnemar(*passes(1900, 2100)).p_value < 0.01

    def test_no_tasks(self) -> None:
        assert mcnemar([], []) == McNemar(0, 0, 1.0)

    def test_runs_must_have_the_same_tasks(self) -> None:
        with pytest.raises(ValueError, match="the same tasks twice"):
            mcnemar([True], [])


BASELINE = {"a": 0.9, "b": 0.2, "c": 0.5, "d": 0.71, "gone": 0.0}
CANDIDATE = {"a": 0.1, "b": 0.75, "c": 0.5, "d": 0.69, "new": 1.0}


class TestFlips:
    def test_the_largest_change_comes_first(self) -> None:
        found = flips(BASELINE, CANDIDATE)
        assert found == [Flip("a", 0.9, 0.1), Flip("b", 0.2, 0.75), Flip("d", 0.71, 0.69)]
        assert found[0].change == pytest.approx(-0.8)

    def test_with_a_pass_mark_only_crossings_count(self) -> None:
        assert [flip.task for flip in flips(BASELINE, CANDIDATE, pass_at=0.75)] == ["a", "b"]

    def test_equal_changes_are_ordered_by_task(self) -> None:
        found = flips({"z": 0.0, "b": 1.0, "a": 0.0}, {"z": 1.0, "b": 0.0, "a": 1.0}, pass_at=0.7)
        assert [flip.task for flip in found] == ["a", "b", "z"]


class TestMinimalDetectableDifference:
    def test_factor(self) -> None:
        assert minimal_detectable_difference(1.0, 1) == pytest.approx(2.486, abs=5e-4)
        assert minimal_detectable_difference(1.0, 1, sides=2) == pytest.approx(2.802, abs=5e-4)

    def test_an_effect_of_that_size_is_found_with_that_power(self) -> None:
        source, sd, n = random.Random(11), 0.2, 200
        effect = minimal_detectable_difference(sd, n)
        found = [compare([0.0] * n, [source.gauss(effect, sd) for _ in range(n)]).p_above(0.0) for _ in range(1500)]
        power = sum(p is not None and p < 0.05 for p in found) / len(found)
        assert power == pytest.approx(0.80, abs=0.035)

    def test_the_deviation_of_a_comparison_holds_its_clusters(self) -> None:
        baseline, candidate = runs_of(50)
        single = compare(baseline, candidate)
        doubled = compare(baseline * 2, candidate * 2, clusters=list(range(50)) * 2)
        assert single.sd is not None
        assert doubled.sd == pytest.approx(single.sd * math.sqrt(2))


class TestHolm:
    def test_worked_example(self) -> None:
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])

    @pytest.mark.parametrize("count", [1, 2, 7, 20])
    def test_statsmodels_agrees(self, count: int) -> None:
        multitest: Any = pytest.importorskip("statsmodels.stats.multitest")
        source = random.Random(count)
        p_values = [source.random() ** 3 for _ in range(count)]
        assert holm(p_values) == pytest.approx(list(multitest.multipletests(p_values, method="holm")[1]))

    def test_none(self) -> None:
        assert holm([]) == []
