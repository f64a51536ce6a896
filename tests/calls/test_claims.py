from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.calls.cache import ReplyStore
from tests.support.stores import finish, kill, line, opened, start

HOLD = """
async def main():
    store = opened()
    for key in sys.argv[2:]:
        assert await store.claim(key)
    say("claimed")
    sys.stdin.readline()
asyncio.run(main())
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replies"


@pytest.fixture
def store(directory: Path) -> Iterator[ReplyStore]:
    store = opened(directory)
    yield store
    store.close()


async def ended(tasks: list[asyncio.Task[bool]]) -> list[bool | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def soon(task: asyncio.Task[None]) -> None:
    await asyncio.wait_for(task, 30)


class TestOneProcess:
    def test_a_second_claim_is_refused_until_the_first_ends(self, store: ReplyStore) -> None:
        async def main() -> None:
            assert await store.claim("key")
            assert not await store.claim("key")
            assert await store.claim("other")
            await store.release("key")
            assert await store.claim("key")
            await store.settle("key", {"key": "paid"})
            assert store.get("key") == "paid"
            assert await store.claim("key")

        asyncio.run(main())

    def test_claims_made_at_once_have_one_winner(self, store: ReplyStore) -> None:
        async def main() -> list[bool]:
            return await asyncio.gather(*(store.claim("key") for _ in range(20)))

        assert sorted(asyncio.run(main())) == [False] * 19 + [True]

    @pytest.mark.parametrize("end", ["settle", "release"])
    def test_a_waiter_returns_when_the_claim_ends_and_not_before(self, store: ReplyStore, end: str) -> None:
        async def main() -> None:
            assert await store.claim("key")
            waiter = asyncio.create_task(store.wait("key"))
            await store.put({"something else": 1})
            await asyncio.sleep(0.2)
            assert not waiter.done()
            await (store.settle("key", {"key": 1}) if end == "settle" else store.release("key"))
            await soon(waiter)
            assert await store.claim("key")

        asyncio.run(main())

    def test_nobody_waits_for_a_claim_that_is_not_there(self, store: ReplyStore) -> None:
        async def main() -> None:
            await soon(asyncio.create_task(store.wait("key")))

        asyncio.run(main())

    def test_many_waiters_share_one_thread_which_ends_with_the_last(self, store: ReplyStore) -> None:
        def watchers() -> list[threading.Thread]:
            return [thread for thread in threading.enumerate() if thread.name == "rubrics-claims"]

        async def main() -> None:
            assert watchers() == []
            for n in range(50):
                assert await store.claim(f"{n}")
            waiters = [asyncio.create_task(store.wait(f"{n % 50}")) for n in range(200)]
            await asyncio.sleep(0.1)
            (watcher,) = watchers()
            for n in range(49):
                await store.release(f"{n}")
            for waiter in waiters:
                if waiter is not waiters[49]:
                    waiter.cancel() if waiter in waiters[99::50] else await soon(waiter)
            waiters[49].cancel()
            await asyncio.to_thread(watcher.join, 30)
            assert watchers() == []

        asyncio.run(main())

    def test_a_claim_whose_caller_was_cancelled_is_given_back(self, store: ReplyStore) -> None:
        async def main() -> None:
            keys = [f"{n}" for n in range(20)]
            tasks = [asyncio.create_task(store.claim(key)) for key in keys]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.wait_for(ended(tasks), 30))
            for key in keys:
                await soon(asyncio.create_task(store.wait(key)))
                assert await store.claim(key)

        asyncio.run(main())

    def test_nobody_is_woken_before_the_key_can_be_claimed(self, store: ReplyStore, directory: Path) -> None:
        """The row of a claim is gone from the file a moment before its process has done with the key."""

        async def main() -> None:
            assert await store.claim("key")
            waiter = asyncio.create_task(store.wait("key"))
            with closing(sqlite3.connect(directory / "cache.db")) as database, database:
                assert database.execute("DELETE FROM Cache WHERE key = 'claim:key'").rowcount == 1
            await asyncio.sleep(0.2)
            assert not waiter.done()
            await store.release("key")
            await soon(waiter)
            assert await store.claim("key")

        asyncio.run(main())

    def test_a_reply_whose_caller_was_cancelled_is_stored_all_the_same(self, store: ReplyStore) -> None:
        async def main() -> None:
            assert await store.claim("key")
            task = asyncio.create_task(store.settle("key", {"key": "paid"}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(asyncio.create_task(store.wait("key")))
            assert store.get("key") == "paid"

        asyncio.run(main())

    def test_two_stores_of_one_process_respect_each_other(self, store: ReplyStore, directory: Path) -> None:
        async def main(other: ReplyStore) -> None:
            assert await store.claim("key")
            assert not await other.claim("key")
            await store.release("key")
            assert await other.claim("key")

        with closing(opened(directory)) as other:
            asyncio.run(main(other))


class TestSeveralProcesses:
    def test_each_key_is_called_for_once(self, directory: Path, tmp_path: Path) -> None:
        body = """
        async def main():
            store, calls = opened(), 0
            async def reply(key):
                nonlocal calls
                while store.get(key) is None:
                    if not await store.claim(key):
                        await store.wait(key)
                    elif store.get(key) is not None:
                        await store.release(key)
                    else:
                        calls += 1
                        await asyncio.sleep(0.005)
                        await store.settle(key, {key: f"reply to {key}"})
                return store.get(key)
            async def slot(keys):
                for key in keys:
                    assert await reply(key) == f"reply to {key}"
            keys = [f"{n}" for n in range(200)]
            await asyncio.gather(*(slot(keys[n::16]) for n in range(16)))
            say(calls)
            store.close()
        asyncio.run(main())
        """
        opened(directory).close()
        calls = [int(finish(process)[0]) for process in [start(directory, body) for _ in range(2)]]
        assert sum(calls) == 200

    def test_others_take_over_when_an_owner_is_killed(self, store: ReplyStore, directory: Path) -> None:
        keys = [f"{n}" for n in range(10)]
        owner = start(directory, HOLD, *keys)
        assert line(owner) == "claimed"

        async def main() -> list[bool]:
            assert not any([await store.claim(key) for key in keys])
            waiters = [asyncio.create_task(store.wait(key)) for key in keys]
            await asyncio.sleep(1.5)  # the watcher has looked at the owner at least once
            assert not any(waiter.done() for waiter in waiters)
            kill(owner)
            for waiter in waiters:
                await soon(waiter)
            return [await store.claim(key) for key in keys]

        assert asyncio.run(main()) == [True] * 10
        assert len(list((directory / "owners").iterdir())) == 1

    def test_a_stopped_owner_is_not_dead(self, store: ReplyStore, directory: Path) -> None:
        owner = start(directory, HOLD, "key")
        assert line(owner) == "claimed"
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert not asyncio.run(store.claim("key"))
        finally:
            kill(owner)

    def test_a_dead_owner_is_one_even_while_a_child_that_it_forked_lives(
        self, store: ReplyStore, directory: Path
    ) -> None:
        body = """
        async def main():
            store = opened()
            assert await store.claim("key")
            child = os.fork()
            if not child:
                os.close(0), os.close(1)
                time.sleep(60)
                os._exit(0)
            say(child)
            sys.stdin.readline()
        asyncio.run(main())
        """
        owner = start(directory, body)
        child = int(line(owner))
        try:
            assert not asyncio.run(store.claim("key"))
            kill(owner)
            os.kill(child, 0)
            assert asyncio.run(store.claim("key"))
        finally:
            os.kill(child, signal.SIGKILL)

    def test_a_dead_owner_is_taken_over_from_by_one_only(self, directory: Path) -> None:
        owner = start(directory, HOLD, *(f"{n}" for n in range(50)))
        assert line(owner) == "claimed"
        kill(owner)
        body = """
        async def main():
            store = opened()
            say("open")
            sys.stdin.readline()
            won = await asyncio.gather(*(store.claim(f"{n}") for n in range(50)))
            say(sum(won))
            sys.stdin.readline()
            store.close()
        asyncio.run(main())
        """
        heirs = [start(directory, body) for _ in range(4)]
        won = []
        for heir in heirs:
            assert line(heir) == "open"
        for heir in heirs:
            assert heir.stdin is not None
            heir.stdin.write("go\n")
            heir.stdin.flush()
        for heir in heirs:
            won.append(int(line(heir)))
        for heir in heirs:
            finish(heir)
        assert sum(won) == 50

    def test_opening_removes_the_lock_files_of_the_dead_and_of_nobody_else(self, directory: Path) -> None:
        dead, alive = start(directory, HOLD, "one"), start(directory, HOLD, "two")
        assert line(dead) == line(alive) == "claimed"
        kill(dead)
        assert len(list((directory / "owners").iterdir())) == 2
        with closing(opened(directory)) as store:
            assert len(list((directory / "owners").iterdir())) == 2
            assert not asyncio.run(store.claim("two"))
            assert asyncio.run(store.claim("one"))
        kill(alive)


class TestOtherHosts:
    @staticmethod
    def _claim(directory: Path, **changes: Any) -> None:
        claim = {"owner": "a" * 32, "host": "elsewhere", "started": "", "until": time.time() + 3600} | changes
        with closing(sqlite3.connect(directory / "cache.db", isolation_level=None)) as connection:
            connection.execute(
                "INSERT INTO Cache (key, raw, store_time, value, mode) VALUES ('claim:key', 1, 0, ?, 1)",
                (json.dumps(claim),),
            )

    def test_their_claims_count_until_their_deadline(self, store: ReplyStore, directory: Path) -> None:
        self._claim(directory)
        assert not asyncio.run(store.claim("key"))

    def test_a_waiter_returns_at_the_deadline(self, store: ReplyStore, directory: Path) -> None:
        self._claim(directory, until=time.time() + 1)

        async def main() -> None:
            assert not await store.claim("key")
            await soon(asyncio.create_task(store.wait("key")))
            assert await store.claim("key")

        asyncio.run(main())

    def test_a_lock_file_of_another_host_is_left_alone(self, store: ReplyStore, directory: Path) -> None:
        path = directory / "owners" / f"{'a' * 32}.lock"
        path.write_text("elsewhere", encoding="utf-8")
        self._claim(directory)
        assert not asyncio.run(store.claim("key"))
        opened(directory).close()
        assert path.exists()

    @pytest.mark.parametrize(
        "change", [{"owner": "../../etc/passwd"}, {"owner": 1}, {"until": None}, {"host": None}], ids=str
    )
    def test_a_claim_of_another_form_protects_nobody(
        self, store: ReplyStore, directory: Path, change: dict[str, Any]
    ) -> None:
        self._claim(directory, **change)
        assert asyncio.run(store.claim("key"))
