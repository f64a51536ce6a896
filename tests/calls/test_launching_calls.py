"""When calls go onto the wire: real gateways, and a provider that limits them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.calls.endpoint import Endpoint, Launch
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.calls.reply import Reply
from tests.support import faults
from tests.support.calls import Caller, caller, in_loop
from tests.support.faults import Fault, FixedWindow, RateLimit, TokenBucket
from tests.support.provider import Provider
from tests.support.workspaces import until

Connect = Callable[..., AbstractContextManager[Caller]]
KINDS = [RateLimit, TokenBucket, FixedWindow]


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=100) as server:
        yield server


@pytest.fixture
def connect(server: Provider, tmp_path: Path) -> Connect:
    return lambda **fields: caller(server, tmp_path / "replies", **fields)


async def ask_many(one: Caller, count: int, name: str = "") -> list[Reply | Exception]:
    return list(await asyncio.gather(*(one.outcome(f"{name} {n}") for n in range(count))))


def statuses(server: Provider) -> list[int | None]:
    return [request.status for request in server.requests]


class TestEpisodes:
    def test_one_refusal_holds_back_everybody(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=2), times=1))
        with connect(slots=1) as one:
            assert not any(isinstance(each, Exception) for each in in_loop(lambda: ask_many(one, 4)))
        first, second = server.requests[:2]
        assert second.at - first.at >= 2
        assert statuses(server) == [429, 200, 200, 200, 200]
        assert one.endpoint.rate_limited == 1

    def test_other_processes_are_held_back_too(self, server: Provider, connect: Connect, tmp_path: Path) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=2), match="limited", times=1))
        pacers = [Pacer(tmp_path / "limits" / "one") for _ in range(2)]
        with connect(pacer=pacers[0]) as one, connect(pacer=pacers[1], settings={"run": "other"}) as other:

            async def ask() -> None:
                limited = asyncio.create_task(one.ask("limited"))
                await asyncio.to_thread(until, lambda: one.endpoint.rate_limited > 0)
                await other.ask("of another process")
                await limited

            in_loop(ask)
        times = [request.at for request in server.requests]
        assert min(times[1:]) - times[0] >= 2

    @pytest.mark.parametrize("headers", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_burst_over_the_limit_is_refused_once(
        self, connect: Connect, tmp_path: Path, kind: type[RateLimit], headers: bool
    ) -> None:
        limit = kind(20, 1.0, headers=headers)
        with (
            Provider(rate=limit, answer_bytes=100) as limited,
            caller(limited, tmp_path / "limited", slots=64, retry_for=60.0) as one,
        ):
            outcomes = in_loop(lambda: ask_many(one, 60))
        assert not any(isinstance(outcome, Exception) for outcome in outcomes)
        assert len(limit.refused) < 64 + 30

    def test_a_long_wait_for_ones_turn_excludes_nobody(self, tmp_path: Path) -> None:
        limit = FixedWindow(4, 3.0)
        with (
            Provider(rate=limit, answer_bytes=100) as limited,
            caller(limited, tmp_path / "limited", slots=16, retry_for=1.0, timeout=3.0) as one,
        ):
            outcomes = in_loop(lambda: ask_many(one, 16))  # the last one has its turn long after its patience of 4 s
        assert not any(isinstance(outcome, Exception) for outcome in outcomes)

    def test_no_slot_is_held_in_a_pause(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=2), times=1))
        with connect(slots=2) as one:

            async def ask() -> None:
                asking = [asyncio.create_task(one.ask(f"{n}")) for n in range(6)]
                await asyncio.to_thread(until, lambda: one.endpoint.rate_limited > 0)
                await asyncio.to_thread(until, lambda: one.endpoint.in_flight == 0)
                assert [slots.idle for slots in one.endpoint.slots] == [2]
                await asyncio.to_thread(until, lambda: one.endpoint.idle <= 0)
                await asyncio.gather(*asking)
                assert one.endpoint.idle == 2 + 1  # one more may be made ready

            in_loop(ask)

    def test_whoever_is_cancelled_in_a_pause_leaves_nothing_behind(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=1), times=1))
        with connect(slots=2) as one:

            async def ask() -> None:
                asking = [asyncio.create_task(one.ask(f"{n}")) for n in range(6)]
                await asyncio.to_thread(until, lambda: one.endpoint.rate_limited > 0)
                for task in asking[:5]:
                    task.cancel()
                await asyncio.gather(*asking[:5], return_exceptions=True)
                assert (await asking[5]).content
                assert (one.endpoint.idle, one.endpoint.in_flight) == (2 + 1, 0)

            in_loop(ask)

    def test_a_stopped_run_does_not_begin_after_a_pause(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=1), times=1))
        with connect() as one:

            async def ask() -> list[Reply | Exception]:
                asking = [asyncio.create_task(one.outcome("first"))]
                await asyncio.to_thread(until, lambda: one.endpoint.rate_limited > 0)
                asking.append(asyncio.create_task(one.outcome("second")))
                one.gateway.stop(CallError("interrupted", "the run was stopped"))
                return list(await asyncio.gather(*asking))

            outcomes = in_loop(ask)
        assert [getattr(outcome, "reason", None) for outcome in outcomes] == ["interrupted"] * 2
        assert statuses(server) == [429]


class TestPace:
    def test_without_complaint_everything_starts_at_once(self, server: Provider, connect: Connect) -> None:
        with connect(slots=128) as one:

            async def ask() -> None:
                await one.ask("warm")
                server.pause()
                asking = asyncio.create_task(ask_many(one, 200))
                await asyncio.to_thread(server.wait_for, 129, None, 60)
                server.resume()
                await asking

            in_loop(ask)
        assert server.max_in_flight == 128

    def test_a_stated_rate_is_kept_from_the_first_call_on(self, server: Provider, connect: Connect) -> None:
        with connect() as one:
            in_loop(lambda: one.ask("warm"))
        with connect(pacer=Pacer(rpm=600)) as one:
            in_loop(lambda: ask_many(one, 12))
        times = [request.at for request in server.requests[1:]]
        assert max(times) - min(times) >= 1.0

    def test_the_awaited_call_goes_first(self, server: Provider, connect: Connect) -> None:
        with connect() as one:

            async def ask() -> None:
                await one.ask("warm")
                one.endpoint.pacer = Pacer(rpm=60)

                def call(text: str, turn: Turn) -> asyncio.Task[Reply]:
                    return asyncio.create_task(one.gateway.complete(one.request(text), one.endpoint, turn))

                turns = [Turn(n) for n in range(5)]
                first = call("0", turns[0])
                await asyncio.to_thread(server.wait_for, 2, None, 60)
                asking = [first, *(call(f"{n}", turns[n]) for n in range(1, 5))]
                await asyncio.sleep(0.1)
                turns[4].rank = -1
                await asyncio.gather(*asking)

            in_loop(ask)
        asked = [request.body["messages"][0]["content"] for request in server.requests]
        assert asked == ["warm", "0", "4", "1", "2", "3"]

    def test_a_call_that_another_makes_uses_no_place(self, server: Provider, connect: Connect) -> None:
        with connect(pacer=Pacer(rpm=1)) as one:

            async def ask() -> None:
                first = asyncio.create_task(one.ask("same"))
                await first
                assert one.endpoint.pacer.wait() > 20
                await asyncio.wait_for(one.ask("same"), 15)  # it is stored

            in_loop(ask)

            async def unused() -> None:
                endpoint: Endpoint = one.new_endpoint()
                endpoint.pacer = Pacer(rpm=1)
                async with Launch(endpoint, Turn(0), 1.0) as launch:
                    await launch.take()
                    assert endpoint.pacer.wait() > 20
                assert endpoint.pacer.wait() == 0

            in_loop(unused)


@pytest.mark.parametrize("key", ["rpm", "tpm"])
def test_a_file_may_state_a_limit(key: str) -> None:
    from pydantic import ValidationError

    from pytest_rubrics.config import ChatModel

    settings: Mapping[str, Any] = {"model": "openai/x", key: 60}
    assert getattr(ChatModel.model_validate(settings), key) == 60
    with pytest.raises(ValidationError):
        ChatModel.model_validate({**settings, key: 0})


def test_time_of_waiting_is_not_time_of_a_call(server: Provider, connect: Connect) -> None:
    with connect(pacer=Pacer(rpm=60)) as one:
        started = time.monotonic()
        replies = in_loop(lambda: ask_many(one, 3))
        waited = time.monotonic() - started
    seconds = [reply.seconds for reply in replies if isinstance(reply, Reply)]
    assert sum(seconds[1:]) < waited - 1
