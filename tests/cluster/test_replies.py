from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.cluster.replies import Replies
from tests.support.stores import opened

Use = Callable[[Replies], Awaitable[object]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replies"


def use(directory: Path, work: Use, max_cost: float | None = None) -> object:
    """Do something with the actor's class on a loop."""

    async def main() -> object:
        replies = Replies(directory, "run", max_cost)
        try:
            async with asyncio.timeout(30):
                return await work(replies)
        finally:
            await replies.close()

    return asyncio.run(main())


def stored(directory: Path, key: str) -> object:
    store: ReplyStore = opened(directory)
    try:
        return store.get(key)
    finally:
        store.close()


def test_one_holder_has_a_claim_until_it_settles_or_releases_it(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        assert await replies.claim("one", "key")
        assert await replies.claim("one", "key")  # asked again after a broken connection
        assert not await replies.claim("two", "key")
        await replies.release("two", "key")
        assert not await replies.claim("two", "key")
        await replies.settle("one", "key", {"key": 1})
        assert await replies.claim("two", "key")
        await replies.release("one", "key")
        assert not await replies.claim("one", "key")
        assert await replies.get("key") == 1

    use(directory, work)


def test_who_waits_is_woken_when_the_holder_is_forgotten(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        assert await replies.claim("dead", "key")
        waiting = asyncio.create_task(replies.wait("key"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await replies.forget("dead")
        await waiting
        assert await replies.claim("alive", "key")

    use(directory, work)


def test_a_claim_that_is_won_after_its_holder_was_forgotten_is_given_back(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        late = asyncio.create_task(replies.claim("dead", "key"))
        await asyncio.sleep(0)
        await replies.forget("dead")
        await late
        assert await replies.claim("alive", "key")

    use(directory, work)


def test_the_dead_get_nothing_more_but_their_replies_are_kept(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        assert await replies.claim("dead", "key")
        await replies.forget("dead")
        with pytest.raises(StoreError, match="given up"):
            await replies.claim("dead", "other")
        with pytest.raises(StoreError, match="given up"):
            await replies.add("dead", "ticket", "budget:run", 1, None)
        await replies.settle("dead", "key", {"key": "it was paid"})

    use(directory, work)
    assert stored(directory, "key") == "it was paid"


def test_a_counter_is_added_to_once_for_a_ticket(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        assert await replies.add("one", "a", "count", 5, 8)
        assert await replies.add("one", "a", "count", 5, 8)
        assert not await replies.add("two", "b", "count", 5, 8)
        assert await replies.get("count") == 5

    use(directory, work)


def test_what_a_dead_holder_had_set_aside_counts_as_spent(directory: Path) -> None:
    async def work(replies: Replies) -> None:
        reserve: tuple[str, int, int] = ("budget:run", 500, 1000)
        assert await replies.add("dead", "1", *reserve)  # and paid 200 of it
        await replies.add("dead", "2", "spent:run", 200, None)
        await replies.add("dead", "3", "budget:run", -300, None)
        assert await replies.add("dead", "4", *reserve)  # in flight when it died
        assert not await replies.add("alive", "5", *reserve)
        await replies.forget("dead")
        assert (await replies.get("spent:run"), await replies.get("budget:run")) == (700, 700)

    use(directory, work, max_cost=1e-6)


def test_what_the_store_has_to_say_is_handed_over_once(directory: Path) -> None:
    async def work(replies: Replies) -> list[list[str]]:
        await replies.put({"key": "value"})
        replies._store._warn("a sentence")
        return [await replies.messages(), await replies.messages()]

    assert use(directory, work) == [["a sentence"], []]
