from __future__ import annotations

import importlib
import itertools
import math
import random
from statistics import fmean
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_rubrics.statistics.agreement import (
    against_labels,
    auc,
    calibration,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    leniency,
)
from pytest_rubrics.statistics.intervals import Estimate, mean

VERDICTS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


def rated(*counts: tuple[str, int]) -> tuple[list[str], list[str]]:
    """Ratings of two raters from pairs such as ``("yn", 5)``: the first says y, the second n, five times."""
    first = [pair[0] for pair, count in counts for _ in range(count)]
    return first, [pair[1] for pair, count in counts for _ in range(count)]


def columns(*rows: str) -> list[list[int | None]]:
    """Units from one text a rater, ``.`` for a rating that is missing."""
    numbers = [[None if sign == "." else int(sign) for sign in row] for row in rows]
    return [list(unit) for unit in zip(*numbers, strict=True)]


def judged(answers: int, error: float, seed: int = 1) -> tuple[list[bool], list[bool], list[int]]:
    """Labels, verdicts that err now and then, and the answer of each criterion."""
    source = random.Random(seed)
    labels = [source.random() < 0.6 for _ in range(answers * 5)]
    return labels, [label ^ (source.random() < error) for label in labels], [i // 5 for i in range(answers * 5)]


class TestCohenKappa:
    @pytest.mark.parametrize(
        ("counts", "kappa"),
        [
            ((("yy", 20), ("yn", 5), ("ny", 10), ("nn", 15)), 0.4),
            ((("yy", 45), ("yn", 15), ("ny", 25), ("nn", 15)), 0.1304),
            ((("yy", 25), ("yn", 35), ("ny", 5), ("nn", 35)), 0.2593),
        ],
    )
    def test_worked_examples(self, counts: tuple[tuple[str, int], ...], kappa: float) -> None:
        assert cohen_kappa(*rated(*counts)).value == pytest.approx(kappa, abs=5e-5)

    def test_statsmodels_agrees_on_value_and_error(self) -> None:
        rater: Any = pytest.importorskip("statsmodels.stats.inter_rater")
        table = [[70, 12, 3], [9, 55, 11], [4, 8, 60]]
        counts = [(f"{a}{b}", table[a][b]) for a, b in itertools.product(range(3), range(3))]
        found, expected = cohen_kappa(*rated(*counts)), rater.cohens_kappa(table)
        assert found.value == pytest.approx(expected.kappa)
        assert found.se == pytest.approx(expected.std_kappa, rel=0.02)  # jackknife against delta method
        assert found.low == pytest.approx(expected.kappa_low, abs=0.01)
        assert found.high == pytest.approx(expected.kappa_upp, abs=0.01)

    @given(VERDICTS)
    def test_who_is_first_does_not_matter(self, pairs: list[tuple[bool, bool]]) -> None:
        first, second = [a for a, _ in pairs], [b for _, b in pairs]
        there, back = cohen_kappa(first, second), cohen_kappa(second, first)
        assert there.value == (None if back.value is None else pytest.approx(back.value))

    def test_criteria_of_one_answer_do_not_count_as_independent(self) -> None:
        labels, verdicts, _ = judged(30, 0.2)
        single = cohen_kappa(labels, verdicts)
        doubled = cohen_kappa(labels * 2, verdicts * 2, clusters=list(range(len(labels))) * 2)
        assert doubled[:3] == pytest.approx(single[:3])

    def test_perfect_agreement_keeps_some_doubt(self) -> None:
        found = cohen_kappa([True, False] * 20, [True, False] * 20, clusters=[i // 2 for i in range(40)])
        assert found.value == 1.0
        assert found.high == 1.0
        assert 0.5 < (found.low or 0.0) < 0.8

    @given(VERDICTS, st.data())
    def test_the_interval_holds_the_value(self, pairs: list[tuple[bool, bool]], data: st.DataObject) -> None:
        clusters = data.draw(st.lists(st.integers(0, 9), min_size=len(pairs), max_size=len(pairs)))
        found = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs], clusters=clusters)
        if found.interval is not None and found.value is not None:
            assert -1.0 <= found.interval[0] <= found.value + 1e-12
            assert found.value <= found.interval[1] + 1e-12 <= 1.0 + 2e-12

    def test_one_category_leaves_it_undefined(self) -> None:
        assert cohen_kappa(["y"] * 5, ["y"] * 5) == Estimate(None, None, None, 5, 5, None)

    def test_no_ratings(self) -> None:
        assert cohen_kappa([], []) == Estimate(None, None, None, 0, 0, None)

    def test_raters_need_the_same_units(self) -> None:
        with pytest.raises(ValueError, match="not 1 and 2 ratings"):
            cohen_kappa([1], [1, 2])


class TestFleissKappa:
    # The worked example of the English Wikipedia: 14 raters, 10 subjects, 5 categories.
    TABLE = (
        (0, 0, 0, 0, 14),
        (0, 2, 6, 4, 2),
        (0, 0, 3, 5, 6),
        (0, 3, 9, 2, 0),
        (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0),
        (3, 2, 6, 3, 0),
        (2, 5, 3, 2, 2),
        (6, 5, 2, 1, 0),
        (0, 2, 2, 3, 7),
    )

    def votes(self) -> list[list[int]]:
        return [[category for category, count in enumerate(row) for _ in range(count)] for row in self.TABLE]

    def test_worked_example(self) -> None:
        assert fleiss_kappa(self.votes()).value == pytest.approx(0.210, abs=5e-4)

    def test_statsmodels_agrees(self) -> None:
        rater: Any = pytest.importorskip("statsmodels.stats.inter_rater")
        numpy: Any = pytest.importorskip("numpy")
        assert fleiss_kappa(self.votes()).value == pytest.approx(rater.fleiss_kappa(numpy.array(self.TABLE)))

    @given(st.integers(0, 2**32))
    def test_who_voted_does_not_matter(self, seed: int) -> None:
        source = random.Random(seed)
        shuffled = [source.sample(unit, len(unit)) for unit in self.votes()]
        assert fleiss_kappa(shuffled) == fleiss_kappa(self.votes())

    @pytest.mark.parametrize("votes", [[[1, 1], [1, 1, 2]], [[1], [2]], [[]]])
    def test_unequal_or_single_votes_are_refused(self, votes: list[list[int]]) -> None:
        with pytest.raises(ValueError, match="the same number of votes, two or more"):
            fleiss_kappa(votes)


class TestKrippendorffAlpha:
    # Krippendorff 2011 (4 observers, 12 units), and the worked example of the English Wikipedia (3 coders, 15 units).
    OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
    CODERS = (".....34121133.3", "1.213343.......", "..21344.21133.4")

    @pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("interval", 0.849)])
    def test_published_observers(self, level: Literal["nominal", "interval"], alpha: float) -> None:
        assert krippendorff_alpha(columns(*self.OBSERVERS), level=level).value == pytest.approx(alpha, abs=5e-4)

    @pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.691), ("interval", 0.811)])
    def test_published_coders(self, level: Literal["nominal", "interval"], alpha: float) -> None:
        assert krippendorff_alpha(columns(*self.CODERS), level=level).value == pytest.approx(alpha, abs=5e-4)

    def test_units_with_one_rating_are_left_out(self) -> None:
        units = columns("1212", "1211")
        assert krippendorff_alpha([*units, [2, None], [None, None]]) == krippendorff_alpha(units)

    @given(st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=4), min_size=2, max_size=15))
    def test_other_units_of_measurement_change_nothing(self, units: list[list[int]]) -> None:
        found = krippendorff_alpha(units, level="interval")
        scaled = krippendorff_alpha([[7 * x - 100 for x in unit] for unit in units], level="interval")
        assert scaled.value == (None if found.value is None else pytest.approx(found.value, abs=1e-9))

    @given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=2, max_size=4), min_size=2, max_size=15))
    def test_of_two_categories_both_levels_agree(self, units: list[list[int]]) -> None:
        nominal, interval = krippendorff_alpha(units), krippendorff_alpha(units, level="interval")
        assert interval.value == (None if nominal.value is None else pytest.approx(nominal.value, abs=1e-9))

    def test_the_interval_level_needs_numbers(self) -> None:
        with pytest.raises(ValueError, match="needs numbers, not 'high'"):
            krippendorff_alpha([["high", "low"]], level="interval")

    def test_clusters_follow_their_units(self) -> None:
        units = columns("12121.", "12112.")
        found = krippendorff_alpha(units, clusters=["a", "a", "b", "b", "c", "d"])
        assert (found.n, found.clusters) == (5, 3)


class TestAgainstLabels:
    def test_rates_are_shares_of_their_own_label(self) -> None:
        found = against_labels([True] * 3 + [False] * 4, [True, True, False, True, False, False, False])
        assert found.accuracy.value == pytest.approx(5 / 7)
        assert found.true_positive_rate.value == pytest.approx(2 / 3)
        assert found.true_negative_rate.value == pytest.approx(3 / 4)
        assert found.balanced_accuracy.value == pytest.approx((2 / 3 + 3 / 4) / 2)

    def test_accuracy_is_a_clustered_mean(self) -> None:
        labels, verdicts, answers = judged(30, 0.1)
        correct = [a == b for a, b in zip(labels, verdicts, strict=True)]
        found = against_labels(verdicts, labels, clusters=answers)
        assert found.accuracy == mean(correct, clusters=answers, bounds=(0.0, 1.0))
        assert found.balanced_accuracy.clusters == 30

    @pytest.mark.parametrize("label", [True, False])
    def test_one_label_leaves_the_rest_undefined(self, label: bool) -> None:
        found = against_labels([True, False, True], [label] * 3)
        undefined = found.true_negative_rate if label else found.true_positive_rate
        assert undefined.value is None
        assert found.balanced_accuracy == Estimate(None, None, None, 3, 3, None)
        assert found.accuracy.value is not None

    def test_a_judge_without_error_keeps_some_doubt(self) -> None:
        labels, _, answers = judged(20, 0.0)
        found = against_labels(labels, labels, clusters=answers)
        for estimate in found:
            assert estimate.value == 1.0
            assert 0.7 < (estimate.low or 0.0) < 0.9

    def test_every_verdict_needs_a_label(self) -> None:
        with pytest.raises(ValueError, match="2 verdicts need as many labels, not 1"):
            against_labels([True, False], [True])


class TestAuc:
    @given(st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.booleans()), min_size=2, max_size=25))
    def test_it_is_the_share_of_pairs_in_the_right_order(self, rows: list[tuple[float, bool]]) -> None:
        hits, misses = [score for score, hit in rows if hit], [score for score, hit in rows if not hit]
        assume(hits and misses)
        wins = [(a > b) + (a == b) / 2 for a, b in itertools.product(hits, misses)]
        scores, labels = [score for score, _ in rows], [hit for _, hit in rows]
        assert auc(scores, labels).value == pytest.approx(fmean(wins))
        assert auc([-score for score in scores], labels).value == pytest.approx(1 - fmean(wins))

    def test_delong_variance_by_its_definition(self) -> None:
        source = random.Random(5)
        labels = [index % 3 == 0 for index in range(90)]
        scores = [source.gauss(0.8 * label, 1) for label in labels]
        hits, misses = ([s for s, label in zip(scores, labels, strict=True) if label == side] for side in (True, False))
        of_hits = [fmean(a > b for b in misses) for a in hits]
        of_misses = [fmean(a > b for a in hits) for b in misses]
        area = fmean(of_hits)
        variance = sum(
            sum((win - area) ** 2 for win in wins) / (len(wins) - 1) / len(wins) for wins in (of_hits, of_misses)
        )
        found = auc(scores, labels)
        assert found.se == pytest.approx(math.sqrt(variance))
        assert found.low == pytest.approx(area - 1.99 * math.sqrt(variance), abs=0.02)

    def test_a_second_copy_of_each_answer_adds_nothing(self) -> None:
        labels = [index % 2 == 0 for index in range(40)]
        scores = [random.Random(index).random() + label * 0.3 for index, label in enumerate(labels)]
        once, twice = auc(scores, labels), auc(scores * 2, labels * 2, clusters=list(range(40)) * 2)
        assert twice[:3] == pytest.approx(once[:3])

    def test_perfect_order_keeps_some_doubt(self) -> None:
        found = auc([0.9] * 15 + [0.1] * 15, [True] * 15 + [False] * 15)
        assert found.value == found.high == 1.0
        assert found.low == pytest.approx(15 / (15 + 2.0484**2), abs=1e-4)  # t with 28 degrees of freedom

    @pytest.mark.parametrize("labels", [[], [True, True], [False]])
    def test_one_label_leaves_it_undefined(self, labels: list[bool]) -> None:
        assert auc([0.5] * len(labels), labels) == Estimate(None, None, None, len(labels), len(labels), None)


class TestCalibration:
    def test_brier_bins_and_error(self) -> None:
        found = calibration([0.1, 0.1, 0.9, 0.9, 1.0], [False, True, True, True, False])
        assert found.brier.value == pytest.approx((0.01 + 0.81 + 0.01 + 0.01 + 1.0) / 5)
        assert [(b.low, b.high, b.hit_share.n) for b in found.bins] == [(0.1, 0.2, 2), (0.9, 1.0, 3)]
        assert found.bins[1].mean_probability == pytest.approx(2.8 / 3)
        assert found.bins[1].hit_share.value == pytest.approx(2 / 3)
        assert found.expected_calibration_error == pytest.approx((2 * 0.4 + 3 * (2.8 / 3 - 2 / 3)) / 5)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 20))
    def test_every_probability_is_in_one_bin_that_holds_it(self, probabilities: list[float], bins: int) -> None:
        found = calibration(probabilities, [True] * len(probabilities), bins=bins).bins
        assert sum(b.hit_share.n for b in found) == len(probabilities)
        assert all(b.low - 1e-12 <= b.mean_probability <= b.high + 1e-12 for b in found)

    def test_no_values(self) -> None:
        found = calibration([], [])
        assert (found.brier.value, found.expected_calibration_error, found.bins) == (None, None, ())

    def test_what_is_no_probability_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"value 1 of 1 is 1\.5, outside the bounds"):
            calibration([1.5], [True])


class TestLeniency:
    def test_missing_verdicts_count_nowhere(self) -> None:
        found = leniency({"a": [True, True, False, None], "b": [None, False, False, False]}, clusters=[1, 1, 2, 3])
        assert found["a"].value == pytest.approx(2 / 3)
        assert (found["a"].n, found["a"].clusters) == (3, 2)
        assert found["b"].value == 0.0
        assert (found["b"].high or 0.0) > 0.3


class TestCoverage:
    @pytest.mark.parametrize("name", ["Cohen's kappa", "Fleiss' kappa"])
    def test_interval_of_clustered_judges(self, name: str) -> None:
        numpy: Any = pytest.importorskip("numpy")
        study: Any = importlib.import_module("perf.interval_coverage")
        rng, coefficient = numpy.random.default_rng(4), study.COEFFICIENTS[name]
        many = study.votes_of(rng, 40_000, 0.2)
        truth = coefficient(many, [0] * len(many)).value
        held, _ = study.agreement_coverage(rng, 1000, 40, 0.2, truth, coefficient)
        assert 0.93 <= held <= 0.975
