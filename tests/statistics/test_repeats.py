from __future__ import annotations

import itertools
import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.statistics.repeats import (
    Component,
    Spread,
    VarianceComponents,
    pass_at_k,
    pass_hat_k,
    spread,
    variance_components,
)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    answers = draw(st.integers(1, 8))
    return answers, draw(st.integers(0, answers)), draw(st.integers(1, answers))


class TestPassAmongK:
    @given(counts())
    def test_it_is_the_share_of_all_subsets(self, numbers: tuple[int, int, int]) -> None:
        answers, passed, k = numbers
        subsets = list(itertools.combinations([True] * passed + [False] * (answers - passed), k))
        assert pass_at_k(answers, passed, k) == pytest.approx(fmean(map(any, subsets)))
        assert pass_hat_k(answers, passed, k) == pytest.approx(fmean(map(all, subsets)))

    @given(st.integers(2, 200), st.data())
    def test_more_answers_help_any_and_hurt_all(self, answers: int, data: st.DataObject) -> None:
        passed, k = data.draw(st.integers(0, answers)), data.draw(st.integers(1, answers - 1))
        assert pass_at_k(answers, passed, k) <= pass_at_k(answers, passed, k + 1)
        assert pass_hat_k(answers, passed, k) >= pass_hat_k(answers, passed, k + 1)

    @given(st.integers(1, 200), st.data())
    def test_of_one_answer_both_are_the_pass_rate(self, answers: int, data: st.DataObject) -> None:
        passed = data.draw(st.integers(0, answers))
        assert pass_at_k(answers, passed, 1) == pass_hat_k(answers, passed, 1) == passed / answers

    def test_large_numbers_keep_their_digits(self) -> None:
        # 1 - prod(1 - k / i for i in n - c + 1 .. n), the numerically stable form of Chen et al. 2021.
        stable = 1.0
        for i in range(1000 - 3 + 1, 1001):
            stable *= 1 - 128 / i
        assert pass_at_k(1000, 3, 128) == pytest.approx(1 - stable, rel=1e-12)

    @pytest.mark.parametrize(("answers", "passed", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0), (0, 0, 1)])
    def test_impossible_counts_are_refused(self, answers: int, passed: int, k: int) -> None:
        with pytest.raises(ValueError, match=f"{passed} passed of {answers} answers cannot tell about {k}"):
            pass_at_k(answers, passed, k)
        with pytest.raises(ValueError, match="cannot tell"):
            pass_hat_k(answers, passed, k)


class TestSpread:
    @given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
    def test_mean_deviation_and_range(self, scores: list[float]) -> None:
        assert spread(scores) == pytest.approx(
            (len(scores), fmean(scores), stdev(scores), min(scores), max(scores)), abs=1e-9
        )

    def test_one_score_has_no_deviation(self) -> None:
        assert spread([0.4]) == Spread(1, 0.4, None, 0.4, 0.4)

    def test_no_score(self) -> None:
        assert spread([]) == Spread(0, None, None, None, None)


def part(component: Component | None) -> float:
    assert component is not None
    return component.variance


class TestVarianceComponents:
    # Wing lengths of mosquitoes: 3 cages, 4 females in each, 2 readings of each (Sokal and Rohlf, nested anova).
    MOSQUITOES = (
        ((58.5, 59.5), (77.8, 80.9), (84.0, 83.6), (70.1, 68.3)),
        ((69.8, 69.8), (56.0, 54.5), (50.7, 49.3), (63.8, 65.8)),
        ((56.6, 57.5), (77.8, 79.2), (69.9, 69.2), (62.1, 64.5)),
    )

    def test_published_nested_analysis(self) -> None:
        found = variance_components(self.MOSQUITOES)
        # Mean squares 332.84, 191.19 and 1.30, with 2 readings of each female and 8 of each cage.
        assert part(found.judge) == pytest.approx(1.3017, abs=5e-5)
        assert part(found.answer) == pytest.approx((191.1864 - 1.3017) / 2, abs=5e-4)
        assert part(found.task) == pytest.approx((332.8379 - 191.1864) / 8, abs=5e-4)

    def test_single_readings_belong_to_the_answers(self) -> None:
        found = variance_components([[[0.1], [0.3]], [[0.6], [0.8]], [[0.2], [0.4]]])
        assert found.judge is None
        assert part(found.answer) == pytest.approx(0.02)
        assert part(found.task) == pytest.approx(0.07 - 0.01)

    def test_single_answers_belong_to_the_tasks(self) -> None:
        found = variance_components([[[0.1, 0.3]], [[0.6, 0.8]], [[0.2, 0.4]]])
        assert found.answer is None
        assert part(found.judge) == pytest.approx(0.02)
        assert part(found.task) == pytest.approx(0.07 - 0.01)

    def test_a_part_below_0_is_reported_as_0_and_flagged(self) -> None:
        found = variance_components([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        assert part(found.judge) == pytest.approx(0.5)
        assert found.answer == Component(0.0, True)

    @pytest.mark.parametrize("scores", [[], [[]], [[[]]]])
    def test_without_scores_nothing_is_known(self, scores: list[list[list[float]]]) -> None:
        assert variance_components(scores) == VarianceComponents(None, None, None)

    def test_one_score_tells_nothing(self) -> None:
        assert variance_components([[[0.5]]]) == VarianceComponents(None, None, None)

    def test_what_was_excluded_is_left_out(self) -> None:
        full = variance_components([[[0.1, 0.2], [0.5, 0.4]], [[0.9, 0.7]]])
        assert variance_components([[[0.1, 0.2], [], [0.5, 0.4]], [], [[0.9, 0.7]]]) == full

    def test_unequal_numbers_recover_the_truth_on_average(self) -> None:
        source = random.Random(3)
        found = [variance_components(self.unbalanced(source)) for _ in range(300)]
        # Untruncated estimates are unbiased; these parts are large enough for truncation not to matter.
        assert fmean(part(components.judge) for components in found) == pytest.approx(1.0, rel=0.05)
        assert fmean(part(components.answer) for components in found) == pytest.approx(4.0, rel=0.05)
        assert fmean(part(components.task) for components in found) == pytest.approx(9.0, rel=0.08)

    def unbalanced(self, source: random.Random) -> list[list[list[float]]]:
        def answer(task: float) -> list[float]:
            level = task + source.gauss(0, 2)
            return [level + source.gauss(0, 1) for _ in range(source.choice((1, 2, 3)))]

        tasks = [source.gauss(0, 3) for _ in range(30)]
        return [[answer(task) for _ in range(source.choice((2, 3, 5)))] for task in tasks]
