"""How long a run takes by the order in which tasks begin, against the bound that no order can beat.

The project's own engine runs in virtual time, see virtual_time.py. Latencies are lognormal: the median answer takes
60 s, the median judge's call 15 s for a sheet and 8 s for a single criterion. What is known of them comes from an
earlier run, whose latencies correlate (r) with this one's on the scale of logarithms.

    python perf/schedule_simulation.py [--tasks 400] [--runs 3] [--markdown]
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence

from virtual_time import Work, bound, makespan

from pytest_rubrics.ordering import order_of_beginning

Order = Callable[[Sequence[Work], random.Random], Sequence[int]]
ANSWER, SHEET, CRITERION = 60.0, 15.0, 8.0
JUDGE_SPREAD = 0.4


def tasks_of(count: int, spread: float, criteria: int, rng: random.Random) -> list[Work]:
    """So many tasks with latencies drawn anew; ``criteria`` 0 judges all of a task in one call."""
    middle, calls = (CRITERION, criteria) if criteria else (SHEET, 1)
    return [
        Work(
            rng.lognormvariate(math.log(ANSWER), spread),
            [rng.lognormvariate(math.log(middle), JUDGE_SPREAD) for _ in range(calls)],
        )
        for _ in range(count)
    ]


def items(tasks: Sequence[Work], _: random.Random) -> Sequence[int]:
    """The order of the items: nothing is known."""
    return order_of_beginning([None] * len(tasks))


def known(correlation: float, *, feeds_judges: bool = False) -> Order:
    """Longest first, or the longest and the shortest in turn, by an earlier run."""

    def order(tasks: Sequence[Work], rng: random.Random) -> Sequence[int]:
        logs = [math.log(task.answer) for task in tasks]
        centre, spread = statistics.fmean(logs), statistics.pstdev(logs)
        rest = math.sqrt(1 - correlation**2)
        return order_of_beginning(
            [math.exp(correlation * (one - centre) + rest * rng.gauss(0, spread)) for one in logs],
            feeds_judges=feeds_judges,
        )

    return order


def shortest(tasks: Sequence[Work], _: random.Random) -> Sequence[int]:
    """The opposite, for comparison."""
    return sorted(range(len(tasks)), key=lambda index: tasks[index].answer)


ORDERS: dict[str, Order] = {
    "item order": items,
    "longest first, r = 0.5": known(0.5),
    "longest first, r = 0.8": known(0.8),
    "longest first, known": known(1.0),
    "longest and shortest in turn, r = 0.5": known(0.5, feeds_judges=True),
    "longest and shortest in turn, r = 0.8": known(0.8, feeds_judges=True),
    "shortest first": shortest,
}
RANKS: dict[str, Callable[[int], int] | None] = {
    "begun first goes first (the engine's)": None,
    "who asked first": lambda place: 0,
    "begun last goes first": lambda place: -place,
}


def over_bound(
    order: Order, count: int, spread: float, criteria: int, concurrency: int, *, one_pool: bool, runs: int,
    rank: Callable[[int], int] | None = None,
) -> float:  # fmt: skip
    """How much longer than the bound a run takes, in percent; the mean of several."""
    found = []
    for seed in range(runs):
        tasks = tasks_of(count, spread, criteria, random.Random(seed))
        took = makespan(tasks, order(tasks, random.Random(seed + 1_000_000)), concurrency, one_pool=one_pool, rank=rank)
        found.append(100 * (took / bound(tasks, concurrency, one_pool=one_pool) - 1))
    return statistics.fmean(found)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--criteria", type=int, default=12, help="of a task, where each is judged alone")
    parser.add_argument("--runs", type=int, default=3, help="runs to average")
    parser.add_argument("--markdown", action="store_true", help="tables for the documentation")
    options = parser.parse_args()
    form = "github" if options.markdown else "simple"
    for one_pool in (True, False):
        for criteria in (0, options.criteria):
            print_orders(options, form, criteria, one_pool=one_pool)
    print_ranks(options, form)


def print_orders(options: argparse.Namespace, form: str, criteria: int, *, one_pool: bool) -> None:
    """Compare the orders in which tasks begin."""
    from tabulate import tabulate

    cases = [(spread, concurrency) for spread in (0.6, 1.0) for concurrency in (32, 128)]
    rows = [
        [name, *(
            over_bound(order, options.tasks, spread, criteria, concurrency, one_pool=one_pool, runs=options.runs)
            for spread, concurrency in cases
        )]
        for name, order in ORDERS.items()
    ]  # fmt: skip
    judged = f"{criteria} criteria one by one" if criteria else "sheets"
    place = "one address" if one_pool else "an address each"
    print(f"\n{options.tasks} tasks, {judged}, {place}: % over the bound\n")
    headers = ["order of beginning", *(f"sigma {spread}, {concurrency} in flight" for spread, concurrency in cases)]
    print(tabulate(rows, headers, tablefmt=form, floatfmt=".1f"), flush=True)


def print_ranks(options: argparse.Namespace, form: str) -> None:
    """Compare the rules by which a free slot is given away."""
    from tabulate import tabulate

    rows = [
        [name, *(
            over_bound(known(0.8), options.tasks, 1.0, criteria, 32, one_pool=True, runs=options.runs, rank=rank)
            for criteria in (0, options.criteria)
        )]
        for name, rank in RANKS.items()
    ]  # fmt: skip
    print("\nWho goes first of those who wait, sigma 1.0, 32 in flight, one address, r = 0.8: % over the bound\n")
    print(tabulate(rows, ["rule", "sheets", "one by one"], tablefmt=form, floatfmt=".1f"))


if __name__ == "__main__":
    main()
