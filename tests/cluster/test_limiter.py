from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pytest_rubrics.cluster.limiter import Limiter


def use(limit: int, work: Callable[[Limiter], Awaitable[object]]) -> object:
    """Do something with the actor's class on a loop."""

    async def main() -> object:
        async with asyncio.timeout(30):
            return await work(Limiter(limit))

    return asyncio.run(main())


async def asked(limiter: Limiter, holder: str, number: int, rank: int = 0) -> asyncio.Task[None]:
    """A call that asks for its slot, after the loop has gone round."""
    task = asyncio.create_task(limiter.acquire(holder, number, rank))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def test_no_more_than_the_limit_are_held_and_the_lowest_rank_is_next() -> None:
    async def work(limiter: Limiter) -> None:
        first = await asked(limiter, "a", 0, rank=0)
        late = await asked(limiter, "a", 1, rank=9)
        early = await asked(limiter, "b", 0, rank=5)
        assert [task.done() for task in (first, late, early)] == [True, False, False]
        await limiter.release("a", 0)
        await early
        assert not late.done()
        await limiter.release("b", 0)
        await late

    use(1, work)


def test_a_call_that_asks_again_has_one_slot() -> None:
    async def work(limiter: Limiter) -> None:
        await limiter.acquire("a", 0, 0)
        await limiter.acquire("a", 0, 0)
        await limiter.acquire("a", 1, 0)
        await limiter.release("a", 0)
        await limiter.release("a", 0)
        await limiter.acquire("b", 0, 0)
        assert not (await asked(limiter, "b", 1)).done()

    use(2, work)


def test_what_the_dead_held_and_waited_for_goes_to_others() -> None:
    async def work(limiter: Limiter) -> None:
        await limiter.acquire("dead", 0, 0)
        await limiter.acquire("alive", 0, 0)
        queued = await asked(limiter, "dead", 1, rank=1)
        waiting = await asked(limiter, "alive", 1, rank=2)
        await limiter.forget("dead")
        await waiting
        assert (await asked(limiter, "dead", 2)).done()  # it is refused nothing, and takes nothing
        assert not (await asked(limiter, "alive", 2)).done()
        await queued

    use(2, work)
