"""The project's own engine in virtual time: hours of calls pass in moments, and nothing of the scheduling is a copy.

An event loop whose clock jumps to the next timer runs the engine, its slots and its ranks as they are. Only what a task
does is replaced: a call holds a slot and sleeps.
"""

from __future__ import annotations

import asyncio
import selectors
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pytest_rubrics.calls.endpoint import Endpoint, Launch, Wire
from pytest_rubrics.calls.limits import LocalSlots, Turn
from pytest_rubrics.engine import Engine
from pytest_rubrics.ordering import ranks_in

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: where it would, its clock jumps."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds of virtual time."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Let the clock jump in place of waiting."""
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


def in_virtual_time(main: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run a coroutine to its end; what it gave, and the seconds that passed for it."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main), loop.now
    finally:
        loop.close()


@dataclass(frozen=True, slots=True)
class Work:
    """One task: how long its answer takes, and each call of its judge.

    Attributes:
        answer: Seconds of the answer.
        judge: Seconds of each judge's call; they go side by side.
    """

    answer: float
    judge: Sequence[float]

    @property
    def chain(self) -> float:
        """Seconds from start to end if nothing ever waits."""
        return self.answer + max(self.judge, default=0.0)


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work
    endpoints: Sequence[Endpoint]


class _Sleeper:
    """Takes the grader's place."""

    async def grade(self, index: int, job: _Job, turn: Turn) -> None:
        """Answer, then judge."""
        model, judge = job.endpoints
        await _call(model, turn, job.work.answer)
        await asyncio.gather(*(_call(judge, turn, seconds) for seconds in job.work.judge))


async def _call(endpoint: Endpoint, turn: Turn, seconds: float) -> None:
    async with Launch(endpoint, turn, tokens=0.0) as launch:
        await launch.take()
        await asyncio.sleep(seconds)


def makespan(
    tasks: Sequence[Work],
    order: Sequence[int],
    concurrency: int,
    *,
    one_pool: bool,
    rank: Callable[[int], int] | None = None,
) -> float:
    """Seconds that the engine takes for these tasks.

    Args:
        tasks: What is to be done.
        order: The order of beginning.
        concurrency: Calls in flight for an address.
        one_pool: Whether model and judge share an address.
        rank: Another rule for who goes first of those who wait for a slot, from a task's place in the order.
    """

    async def run() -> None:
        engine = Engine(cast("Any", _Sleeper()), jobs=())
        pools = [LocalSlots(concurrency, engine.wake) for _ in range(1 if one_pool else 2)]
        endpoints = [_endpoint(pools[0]), _endpoint(pools[-1])]
        engine.jobs = [cast("Any", _Job(work, endpoints)) for work in tasks]
        engine.order = order
        engine._ranks = ranks_in(order)
        if rank:
            engine._ranks = array("q", map(rank, engine._ranks))
        engine._loop = asyncio.get_running_loop()
        engine._feeding = asyncio.ensure_future(engine._work_ahead())
        waiting = set(range(len(tasks)))
        while waiting:
            index = await engine._first_finished(waiting)
            waiting.remove(index)
            await engine._hand_over(index)

    _, seconds = in_virtual_time(run())
    return seconds


def _endpoint(pool: LocalSlots) -> Endpoint:
    return Endpoint("local", "model", "address", Wire, timeout=1.0, retry_for=1.0, slots=[pool])


def bound(tasks: Sequence[Work], concurrency: int, *, one_pool: bool) -> float:
    """Seconds that no schedule can beat: all work evenly over all slots, or the longest chain."""
    answers, judgements = sum(task.answer for task in tasks), sum(sum(task.judge) for task in tasks)
    busy = answers + judgements if one_pool else max(answers, judgements)
    return max(busy / concurrency, max(task.chain for task in tasks))
