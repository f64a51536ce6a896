"""In which order jobs are begun."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from statistics import median


def order_of_beginning(
    expected: Sequence[float | None], worker: int = 0, workers: int = 1, *, feeds_judges: bool = False
) -> list[int]:
    """Indices of jobs in the order in which one of several workers begins them.

    The longest first, so that no long one is left over at the end, when slots are idle; an unknown one counts as a
    middling one. Each worker deals itself every n-th of that order; where nothing is known, a stretch of items. Then
    it helps the others, from the end: what they will come to last is most likely still to do.

    Judges that have slots of their own, and much to do, would stand idle while all slots are busy with long answers. To
    feed them, the longest and the shortest begin in turn. ``perf/schedule_simulation.py`` compares the orders.

    Args:
        expected: Seconds to expect for each job, or None.
        worker: Which worker this is, counted from 0.
        workers: How many share the jobs.
        feeds_judges: Whether judges must not wait long for the first answers.

    >>> order_of_beginning([10, 30, None, 20])
    [1, 2, 3, 0]
    >>> order_of_beginning([10, 30, None, 20], feeds_judges=True)
    [1, 0, 2, 3]
    >>> order_of_beginning([10, 30, None, 20], worker=1, workers=2)
    [2, 0, 3, 1]
    >>> order_of_beginning([None] * 4, worker=1, workers=2)
    [2, 3, 1, 0]
    """
    hands = _dealt(expected, workers, feeds_judges=feeds_judges)
    others = [hands[(worker + step) % workers] for step in range(1, workers)]
    return [*hands[worker], *(index for hand in others for index in reversed(hand))]


def _dealt(expected: Sequence[float | None], workers: int, *, feeds_judges: bool) -> list[list[int]]:
    """The jobs of each worker."""
    count = len(expected)
    known = [seconds for seconds in expected if seconds is not None]
    if not known:
        return [list(range(count * n // workers, count * (n + 1) // workers)) for n in range(workers)]
    middle = median(known)
    longest = sorted(range(count), key=lambda index: -_or(expected[index], middle))
    if feeds_judges:
        longest = [index for pair in zip(longest, reversed(longest), strict=True) for index in pair][:count]
    return [longest[n::workers] for n in range(workers)]


def ranks_in(order: Sequence[int]) -> array[int]:
    """The place of each index in an order of them all.

    >>> ranks_in([2, 0, 1])
    array('q', [1, 2, 0])
    """
    ranks = array("q", order)
    for rank, index in enumerate(order):
        ranks[index] = rank
    return ranks


def _or(seconds: float | None, middle: float) -> float:
    return middle if seconds is None else seconds
