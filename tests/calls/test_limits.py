from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.calls.limits import LocalSlots, SharedSlots, Slots, Turn, share_of

HOLD = """
import asyncio, sys
from pathlib import Path
from pytest_rubrics.calls.limits import SharedSlots, Turn

async def main():
    async with SharedSlots(Path(sys.argv[1]), 1).slot(Turn(0)):
        print("held", flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


class Ledger:
    """Notes who holds a slot, and how many did at most."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.held = 0
        self.most = 0

    async def use(self, slots: Slots, name: str, turn: Turn, end: asyncio.Event | None = None) -> None:
        async with slots.slot(turn):
            self.order.append(name)
            self.held += 1
            self.most = max(self.most, self.held)
            await (end.wait() if end else asyncio.sleep(0))
            self.held -= 1


@given(st.integers(1, 200), st.integers(1, 40))
def test_the_shares_of_all_workers_add_up_to_the_limit(limit: int, workers: int) -> None:
    shares = [share_of(limit, worker, workers) for worker in range(workers)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


class TestLocalSlots:
    def test_no_more_than_the_limit_are_held(self) -> None:
        async def main() -> Ledger:
            slots, ledger = LocalSlots(3, lambda: None), Ledger()
            async with asyncio.timeout(30):
                await asyncio.gather(*(ledger.use(slots, str(n), Turn(n)) for n in range(50)))
            assert (slots.held, slots.idle) == (0, 3)
            return ledger

        ledger = asyncio.run(main())
        assert (len(ledger.order), ledger.most) == (50, 3)

    def test_the_lowest_rank_goes_first_and_a_rank_may_drop_while_waiting(self) -> None:
        async def main() -> list[str]:
            slots, ledger, end = LocalSlots(1, lambda: None), Ledger(), asyncio.Event()
            first = asyncio.create_task(ledger.use(slots, "first", Turn(0), end))
            await asyncio.sleep(0)
            turns = {"late": Turn(9), "middle": Turn(5), "awaited": Turn(7)}
            rest = [asyncio.create_task(ledger.use(slots, name, turn)) for name, turn in turns.items()]
            await asyncio.sleep(0)
            turns["awaited"].rank = -1
            end.set()
            await asyncio.gather(first, *rest)
            return ledger.order

        assert asyncio.run(main()) == ["first", "awaited", "middle", "late"]

    def test_whoever_is_cancelled_leaves_the_queue(self) -> None:
        async def main() -> list[str]:
            slots, ledger, end = LocalSlots(1, lambda: None), Ledger(), asyncio.Event()
            holder = asyncio.create_task(ledger.use(slots, "holder", Turn(0), end))
            await asyncio.sleep(0)
            gone = asyncio.create_task(ledger.use(slots, "gone", Turn(1)))
            patient = asyncio.create_task(ledger.use(slots, "patient", Turn(2)))
            await asyncio.sleep(0)
            assert slots.idle == -2
            gone.cancel()
            end.set()
            await asyncio.gather(holder, gone, patient, return_exceptions=True)
            assert (slots.held, slots.idle) == (0, 1)
            return ledger.order

        assert asyncio.run(main()) == ["holder", "patient"]

    def test_a_slot_handed_to_a_task_that_is_cancelled_in_that_moment_is_not_lost(self) -> None:
        async def main() -> None:
            slots, ledger, end = LocalSlots(1, lambda: None), Ledger(), asyncio.Event()
            holder = asyncio.create_task(ledger.use(slots, "holder", Turn(0), end))
            await asyncio.sleep(0)
            waiter = asyncio.create_task(ledger.use(slots, "waiter", Turn(1)))
            await asyncio.sleep(0)
            end.set()
            await holder  # the slot has just been handed over
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            async with asyncio.timeout(30):
                await ledger.use(slots, "next", Turn(2))

        asyncio.run(main())

    def test_a_slot_given_back_is_told(self) -> None:
        told: list[int] = []

        async def main() -> None:
            slots = LocalSlots(1, lambda: told.append(slots.idle))
            async with slots.slot(Turn(0)):
                assert told == []

        asyncio.run(main())
        assert told == [1]

    def test_a_slot_is_given_back_after_an_error(self) -> None:
        async def main() -> int:
            slots = LocalSlots(1, lambda: None)
            with pytest.raises(ValueError, match="broken"):
                async with slots.slot(Turn(0)):
                    raise ValueError("broken")
            return slots.idle

        assert asyncio.run(main()) == 1


class TestSharedSlots:
    @pytest.fixture
    def shared(self, tmp_path: Path) -> Callable[[int], SharedSlots]:
        return lambda count: SharedSlots(tmp_path / "slots", count, poll=0.001)

    def test_no_more_than_the_limit_are_held_by_all_together(self, shared: Callable[[int], SharedSlots]) -> None:
        async def main() -> Ledger:
            workers, ledger = [shared(2) for _ in range(3)], Ledger()
            async with asyncio.timeout(60):
                await asyncio.gather(*(ledger.use(workers[n % 3], str(n), Turn(n)) for n in range(30)))
            return ledger

        ledger = asyncio.run(main())
        assert (len(ledger.order), ledger.most) == (30, 2)

    def test_the_slot_of_a_killed_process_is_free_again(
        self, tmp_path: Path, shared: Callable[[int], SharedSlots]
    ) -> None:
        async def take(seconds: float) -> None:
            async with asyncio.timeout(seconds), shared(1).slot(Turn(0)):
                pass

        command = [sys.executable, "-c", HOLD, str(tmp_path / "slots")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with pytest.raises(TimeoutError):
                asyncio.run(take(0.2))
            process.kill()
            process.wait()
            asyncio.run(take(30))
