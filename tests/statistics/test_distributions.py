from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.statistics.distributions import (
    beta_cdf,
    binomial_cdf,
    normal_quantile,
    student_quantile,
    student_tail,
)

special = pytest.importorskip("scipy.special")

SHAPES = st.floats(0.05, 3000)
PROBABILITIES = st.floats(1e-9, 1 - 1e-9)


@given(x=st.floats(0, 1), a=SHAPES, b=SHAPES)
def test_beta_distribution_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-12)


@given(t=st.floats(-50, 50), df=st.floats(0.5, 5000))
def test_student_tail_is_that_of_scipy(t: float, df: float) -> None:
    assert student_tail(t, df) == pytest.approx(special.stdtr(df, -t), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("t", "tail"), [(math.inf, 0.0), (-math.inf, 1.0), (0.0, 0.5)])
def test_student_tail_at_its_ends(t: float, tail: float) -> None:
    assert student_tail(t, 3) == tail


@given(probability=PROBABILITIES, df=st.floats(0.5, 5000))
def test_student_quantile_inverts_the_tail(probability: float, df: float) -> None:
    assert student_tail(student_quantile(probability, df), df) == pytest.approx(1 - probability, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize(("df", "printed"), [(1, 12.706), (2, 4.303), (10, 2.228), (30, 2.042), (120, 1.980)])
def test_student_quantile_is_that_of_the_printed_tables(df: int, printed: float) -> None:
    assert student_quantile(0.975, df) == pytest.approx(printed, abs=5e-4)


@given(probability=PROBABILITIES)
def test_normal_quantile_is_that_of_scipy(probability: float) -> None:
    assert normal_quantile(probability) == pytest.approx(special.ndtri(probability), rel=1e-7, abs=1e-9)


@given(trials=st.integers(1, 60), probability=st.floats(0.01, 0.99), data=st.data())
def test_binomial_distribution_sums_its_terms(trials: int, probability: float, data: st.DataObject) -> None:
    successes = data.draw(st.integers(-1, trials + 1))
    terms = (
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k)
        for k in range(min(successes, trials) + 1)
    )
    assert binomial_cdf(successes, trials, probability) == pytest.approx(math.fsum(terms), abs=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_a_quantile_of_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal_quantile(probability)
