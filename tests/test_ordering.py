from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.ordering import order_of_beginning

EXPECTED = st.lists(st.none() | st.floats(0.1, 1000), max_size=30)


@given(EXPECTED, st.integers(1, 5), st.booleans())
def test_every_worker_has_every_job_once(expected: list[float | None], workers: int, feeds_judges: bool) -> None:
    for worker in range(workers):
        order = order_of_beginning(expected, worker, workers, feeds_judges=feeds_judges)
        assert sorted(order) == list(range(len(expected)))


@given(EXPECTED.filter(lambda expected: any(expected)), st.integers(1, 5))
def test_workers_begin_with_jobs_of_their_own_and_the_longest_of_all(
    expected: list[float | None], workers: int
) -> None:
    share = len(expected) // workers
    own = [order_of_beginning(expected, worker, workers)[:share] for worker in range(workers)]
    assert len({index for indices in own for index in indices}) == share * workers
    for indices in own:
        known = [seconds for index in indices if (seconds := expected[index]) is not None]
        assert known == sorted(known, reverse=True)


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_equals_keep_the_order_of_the_items(seconds: float | None) -> None:
    assert order_of_beginning([seconds] * 4) == [0, 1, 2, 3]


def test_an_unknown_job_counts_as_a_middling_one() -> None:
    assert order_of_beginning([1.0, None, 3.0, 2.0, None]) == [2, 1, 3, 4, 0]


def test_judges_are_fed_by_the_longest_and_the_shortest_in_turn() -> None:
    assert order_of_beginning([1.0, 5.0, 3.0, 2.0, 4.0], feeds_judges=True) == [1, 0, 4, 3, 2]
