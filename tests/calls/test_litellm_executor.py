from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from pytest_rubrics.calls.litellm_executor import LiteLLMExecutor, first_only_prepares

T = TypeVar("T")


def in_loop(work: Awaitable[T]) -> T:
    """Run something in a loop that has the executor."""

    async def run() -> T:
        asyncio.get_running_loop().set_default_executor(LiteLLMExecutor(2))
        return await work

    return asyncio.run(run())


async def who_does_it() -> int:
    return await asyncio.to_thread(threading.get_ident)


def test_only_the_first_work_of_a_block_that_prepares_is_done_at_once() -> None:
    async def work() -> list[bool]:
        here = threading.get_ident()
        with first_only_prepares(True):
            first, second = await who_does_it(), await who_does_it()
        return [first == here, second == here]

    assert in_loop(work()) == [True, False]


@pytest.mark.parametrize("yes", [True, False])
def test_what_comes_after_the_block_is_done_in_a_thread(yes: bool) -> None:
    async def work() -> bool:
        with first_only_prepares(yes):
            pass
        return await who_does_it() == threading.get_ident()

    assert in_loop(work()) is False


def test_another_task_is_not_meant() -> None:
    async def work() -> bool:
        other = asyncio.create_task(who_does_it())
        with first_only_prepares(True):
            return await other == threading.get_ident()

    assert in_loop(work()) is False


def test_an_error_reaches_whoever_waits() -> None:
    def fail() -> None:
        raise ValueError("it is wrong")

    async def work() -> None:
        with first_only_prepares(True):
            await asyncio.get_running_loop().run_in_executor(None, fail)

    with pytest.raises(ValueError, match="it is wrong"):
        in_loop(work())
