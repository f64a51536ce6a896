"""What waits for a slot, and what holds one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pytest_rubrics.calls import litellm_client
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import LocalSlots
from pytest_rubrics.calls.reply import Reply
from tests.support import faults
from tests.support.calls import Caller, caller, in_loop
from tests.support.environments import neutral_environment
from tests.support.faults import Exchange, Fault
from tests.support.provider import Provider
from tests.support.workspaces import until

Connect = Callable[..., AbstractContextManager[Caller]]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=100, latency=0.05) as server:
        yield server


# LiteLLM shows when it sends to servers that speak OpenAI's protocol, and of others it does not.
@pytest.fixture(params=[("litellm", "openai/model"), ("litellm", "hosted_vllm/model"), ("openai", "openai/model")])
def connect(request: pytest.FixtureRequest, server: Provider, tmp_path: Path) -> Connect:
    client, model = request.param
    return lambda **fields: caller(server, tmp_path / "replies", client=client, model=model, **fields)


async def ask_many(one: Caller, count: int) -> list[Reply | Exception]:
    return list(await asyncio.gather(*(one.outcome(f"question {n}") for n in range(count))))


def test_no_more_calls_are_in_flight_than_there_are_slots(server: Provider, connect: Connect) -> None:
    with connect(slots=3) as one:
        outcomes = in_loop(lambda: ask_many(one, 40))
        assert all(isinstance(outcome, Reply) for outcome in outcomes)
        assert (server.max_in_flight, server.count()) == (3, 40)
        assert (one.endpoint.in_flight, one.endpoint.places.held, one.endpoint.slots[0].idle) == (0, 0, 3)


def test_calls_are_made_ready_while_all_slots_are_held(server: Provider, connect: Connect) -> None:
    with connect(slots=4) as one:
        server.pause()

        async def ask() -> None:
            asking = asyncio.create_task(ask_many(one, 20))
            await asyncio.to_thread(until, lambda: one.endpoint.slots[0].idle == -2 and server.in_flight == 4)
            assert (one.endpoint.in_flight, one.endpoint.places.held) == (4, 4 + 2)
            server.resume()
            await asking

        in_loop(ask)
    assert server.max_in_flight == 4


def test_what_waits_for_a_slot_is_not_sent_when_the_run_has_been_stopped(server: Provider, connect: Connect) -> None:
    with connect(slots=2) as one:
        server.pause()

        async def ask() -> list[Reply | Exception]:
            asking = asyncio.create_task(ask_many(one, 6))
            await asyncio.to_thread(until, lambda: one.endpoint.slots[0].idle == -1 and server.in_flight == 2)
            one.gateway.stop(CallError("interrupted", "the user has had enough"))
            server.resume()
            return await asking

        outcomes = in_loop(ask)
    assert [isinstance(outcome, Reply) for outcome in outcomes].count(True) == server.count() == 2
    stopped = [outcome for outcome in outcomes if not isinstance(outcome, Reply)]
    assert {(type(error), str(error)) for error in stopped} == {(CallError, "the user has had enough")}


def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing_behind(server: Provider, connect: Connect) -> None:
    with connect(slots=1) as one:
        server.pause()

        async def ask() -> None:
            first, second = (asyncio.create_task(one.ask(f"question {n}")) for n in range(2))
            await asyncio.to_thread(until, lambda: one.endpoint.slots[0].idle == -1)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            server.resume()
            await first
            await one.ask("question 1")

        in_loop(ask)
        assert (one.endpoint.in_flight, one.endpoint.places.held, one.endpoint.slots[0].idle) == (0, 0, 1)
    assert server.count() == 2


def test_waiting_for_a_slot_is_no_part_of_the_time_that_a_call_may_take(server: Provider, connect: Connect) -> None:
    server.faults.add(Fault(faults.slow(0.4)))
    with connect(slots=1, timeout=1.0, retry_for=1.0) as one:
        outcomes = in_loop(lambda: ask_many(one, 6))
    assert all(isinstance(outcome, Reply) and 0.4 <= outcome.seconds < 1.0 for outcome in outcomes)
    assert server.count() == 6


def test_a_call_counts_as_in_flight_until_its_reply_is_stored(server: Provider, connect: Connect) -> None:
    seen = []
    with connect() as one:
        slots, key = (
            LocalSlots(1, lambda: seen.append((one.endpoint.in_flight, one.store.get(key)))),
            one.request().key(),
        )
        one.endpoint.slots = [slots]
        assert in_loop(lambda: one.ask()).content
        assert seen == [(1, None)]  # a run that stops at this moment waits for it
        assert one.endpoint.in_flight == 0
        assert one.store.get(key) is not None


def test_a_redirected_call_keeps_its_slot(server: Provider, connect: Connect) -> None:
    async def elsewhere(_: Exchange) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": f"{server.url}/chat/completions"})

    server.faults.add(Fault(elsewhere, times=1))
    with connect(slots=1) as one:
        assert in_loop(lambda: one.ask()).content
        assert (one.endpoint.in_flight, one.endpoint.places.held, one.endpoint.slots[0].idle) == (0, 0, 1)
    assert [request.status for request in server.requests] == [307, 200]


def test_models_that_litellm_calls_another_way_keep_to_their_slots(tmp_path: Path) -> None:
    message: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    message |= {"content": [{"type": "output_text", "text": "an answer", "annotations": []}]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    body: dict[str, Any] = {"id": "r", "object": "response", "created_at": 1, "model": "x", "status": "completed"}
    body |= {"output": [message], "usage": usage}
    with (
        Provider(latency=0.05, other=lambda _: (200, body)) as server,
        caller(server, tmp_path, slots=2, model="openai/responses/x") as one,
    ):
        outcomes = in_loop(lambda: ask_many(one, 12))
    assert [getattr(outcome, "content", outcome) for outcome in outcomes] == ["an answer"] * 12
    assert {request.path for request in server.requests} == {"/v1/responses"}
    assert server.max_in_flight == 2


def test_of_known_models_it_is_learned_whether_they_show_when_they_send(server: Provider, tmp_path: Path) -> None:
    with caller(server, tmp_path, slots=2, model="openai/gpt-4o") as one:
        assert not litellm_client.crosses_by_itself(one.model)
        in_loop(lambda: ask_many(one, 6))
        assert litellm_client.crosses_by_itself(one.model)
        litellm_client.note_crossing(one.model, was_seen=False)
        litellm_client.note_crossing(one.model, was_seen=True)
        assert not litellm_client.crosses_by_itself(one.model)
    assert server.max_in_flight == 2


def test_a_session_that_the_user_has_given_litellm_stays_theirs(server: Provider, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path

import httpx
import litellm

from tests.calls.test_wire import ask_many
from tests.support.calls import Caller, in_loop
from tests.support.stores import opened

class Served:
    url = sys.argv[1]

theirs = litellm.aclient_session = httpx.AsyncClient(headers={"X-Session": "theirs"})
store = opened(Path(sys.argv[2]))
in_loop(lambda: ask_many(Caller(Served(), store, slots=2), 8))
store.close()
assert litellm.aclient_session is theirs
"""
    command = [sys.executable, "-W", "ignore", "-c", code, server.url, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=neutral_environment(PYTHONPATH=str(ROOT)), check=True)
    assert [request.headers.get("X-Session") for request in server.requests] == ["theirs"] * 8
    assert server.max_in_flight == 2
