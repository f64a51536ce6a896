from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rubrics.calls.budget import Budget, NoRoomYetError
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import MAX_TRIES, most_input_tokens
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from tests.support import faults
from tests.support.calls import KEY, Caller, caller, in_loop
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.workspaces import until

if TYPE_CHECKING:
    from pydantic import JsonValue

Connect = Callable[..., AbstractContextManager[Caller]]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(answer_bytes=400) as provider:
        yield provider


@pytest.fixture
def server(provider: Provider) -> Iterator[Provider]:
    provider.faults.clear()
    yield provider
    provider.faults.clear()


@pytest.fixture
def connect(server: Provider, tmp_path: Path) -> Connect:
    """Makes callers that share one store of replies."""
    return lambda **fields: caller(server, tmp_path / "replies", **fields)


def reason(outcome: Reply | Exception) -> str | None:
    return outcome.reason if isinstance(outcome, CallError) else None


def asked_since(server: Provider, before: int) -> int:
    return server.count() - before


class TestOnePaidReply:
    def test_a_reply_is_paid_once_and_found_from_then_on(self, server: Provider, connect: Connect) -> None:
        before = server.count()
        with connect() as first:
            paid = in_loop(lambda: first.ask("q"))
            again = in_loop(lambda: first.ask("q"))
        with connect(settings={"run": "another"}) as second:
            found = in_loop(lambda: second.ask("q"))
        assert asked_since(server, before) == 1
        assert paid.to_row() == again.to_row() == found.to_row()
        assert (paid.run, first.gateway.is_own(found), second.gateway.is_own(found)) == ("run", True, False)

    def test_what_came_is_stored_as_it_came(self, tmp_path: Path) -> None:
        with (
            Provider(reasoning="First, think.", answers=lambda body: " An answer.\n") as server,
            caller(server, tmp_path / "replies") as one,
        ):
            reply = in_loop(lambda: one.ask("q"))
            assert one.store.get(one.request("q").key()) == json.loads(json.dumps(reply.to_row()))
        assert (reply.content, reply.reasoning, reply.finish_reason) == (" An answer.\n", "First, think.", "stop")
        assert reply.usage.reasoning_tokens == len("First, think.") // 4
        assert reply.served_model == "model-2026-01-01"
        assert reply.response_id is not None
        assert reply.at == pytest.approx(time.time(), abs=60)

    def test_many_at_once_in_one_process_ask_once(self, server: Provider, connect: Connect) -> None:
        before = server.count()
        with connect() as one:

            async def ask() -> list[Reply]:
                return await asyncio.gather(*(one.ask("same") for _ in range(20)))

            replies = in_loop(ask)
        assert asked_since(server, before) == 1
        assert len({reply.response_id for reply in replies}) == 1

    def test_two_processes_ask_once(self, server: Provider, connect: Connect) -> None:
        before = server.count()
        with connect() as one, connect(settings={"run": "other"}) as two:

            async def ask() -> list[Reply]:
                return await asyncio.gather(*(c.ask(f"shared {n}") for n in range(10) for c in (one, two)))

            replies = in_loop(ask)
        assert asked_since(server, before) == 10
        assert [reply.response_id for reply in replies[::2]] == [reply.response_id for reply in replies[1::2]]

    def test_whoever_waits_asks_when_the_first_has_failed(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(400), times=1))
        before = server.count()
        with connect() as one:

            async def ask() -> list[Reply | Exception]:
                return list(await asyncio.gather(one.outcome("fails once"), one.outcome("fails once")))

            outcomes = in_loop(ask)
        assert asked_since(server, before) == 2
        assert sorted(str(reason(outcome)) for outcome in outcomes) == ["None", "bad_request"]

    def test_a_reply_that_arrives_while_its_task_is_cancelled_is_stored(
        self, server: Provider, connect: Connect
    ) -> None:
        with connect() as one:
            settle, settled = one.store.settle, asyncio.Event()

            async def slow_settle(key: str, rows: Mapping[str, JsonValue]) -> None:
                task.cancel()
                await asyncio.sleep(0.05)
                await settle(key, rows)
                settled.set()

            one.store.settle = slow_settle  # type: ignore[method-assign]
            task: asyncio.Task[Reply]

            async def ask() -> None:
                nonlocal task
                task = asyncio.create_task(one.ask("cancelled"))
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                await settled.wait()

            in_loop(ask)
            assert one.store.get(one.request("cancelled").key()) is not None

    def test_the_time_of_a_reply_is_that_of_its_own_call(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=1), times=1))
        with connect(slots=1) as one:
            in_loop(lambda: one.ask("warm"))  # LiteLLM's first call takes its time

            async def ask() -> list[Reply]:
                return await asyncio.gather(*(one.ask(f"timed {n}") for n in range(3)))

            started = time.monotonic()
            replies = in_loop(ask)
            assert sum(reply.seconds for reply in replies) < time.monotonic() - started


class TestTrying:
    @pytest.mark.parametrize(
        "effect",
        [faults.error(500), faults.error(529), faults.reset(), faults.cut(), faults.html(), faults.invalid_json()],
        ids=["500", "529", "reset", "cut", "web page", "broken JSON"],
    )
    def test_a_fault_that_passes_is_healed(self, server: Provider, connect: Connect, effect: faults.Effect) -> None:
        server.faults.add(Fault(effect, times=2))
        before = server.count()
        with connect() as one:
            reply = in_loop(lambda: one.ask("healed"))
        assert asked_since(server, before) == 3
        assert reply.content

    @pytest.mark.parametrize(
        ("status", "expected"),
        [(400, "bad_request"), (401, "authentication"), (403, "authentication"), (402, "credit")],
    )
    def test_a_refusal_is_not_repeated(self, server: Provider, connect: Connect, status: int, expected: str) -> None:
        server.faults.add(Fault(faults.error(status)))
        before = server.count()
        with connect() as one:
            outcome = in_loop(lambda: one.outcome())
        assert (asked_since(server, before), reason(outcome)) == (1, expected)
        assert str(outcome).startswith(f"name (HTTP {status}): ")

    def test_retry_after_is_waited_for(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=2), times=1))
        with connect() as one:
            in_loop(lambda: one.ask("patient"))
            first, second = server.requests[-2:]
        assert second.at - first.at >= 2
        assert one.endpoint.rate_limited == 1

    def test_a_date_is_waited_for(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(503, retry_after=3, http_date=True), times=1))
        with connect() as one:
            in_loop(lambda: one.ask("patient"))
            first, second = server.requests[-2:]
        assert second.at - first.at >= 1  # the date is in whole seconds

    def test_others_go_on_while_one_waits(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(503, retry_after=2), match="hiccup", times=1))
        before = server.count()
        with connect(slots=1) as one:

            async def ask() -> None:
                waiting = asyncio.create_task(one.ask("hiccup"))
                await asyncio.to_thread(until, lambda: server.count() > before)
                await asyncio.gather(*(one.ask(f"free {n}") for n in range(3)))
                assert not waiting.done()
                await waiting

            in_loop(ask)

    def test_a_limit_that_never_ends_is_given_up_after_retry_for(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429)))
        before = server.count()
        with connect(retry_for=0.5, timeout=0.5) as one:
            outcome = in_loop(lambda: one.outcome())
        assert reason(outcome) == "transport"
        assert 2 <= asked_since(server, before) <= 4

    def test_a_wait_longer_than_retry_for_is_not_begun(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(429, retry_after=3600)))
        before = server.count()
        with connect() as one:
            outcome = in_loop(lambda: one.outcome())
        assert (asked_since(server, before), reason(outcome)) == (1, "transport")

    def test_a_fault_that_stays_is_given_up_after_some_tries(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(500, retry_after=0)))
        before = server.count()
        with connect() as one:
            outcome = in_loop(lambda: one.outcome())
        assert asked_since(server, before) == MAX_TRIES
        assert reason(outcome) == "transport"
        assert f"name (HTTP 500) after {MAX_TRIES} tries: " in str(outcome)

    def test_an_endpoint_that_answers_nobody_is_tried_once_by_each_further_call(
        self, server: Provider, connect: Connect
    ) -> None:
        server.faults.add(Fault(faults.error(500, retry_after=0)))
        with connect(slots=2) as one:
            in_loop(lambda: one.outcome("first"))
            before = server.count()

            async def rest() -> list[Reply | Exception]:
                return await asyncio.gather(*(one.outcome(f"rest {n}") for n in range(20)))

            outcomes = in_loop(rest)
            assert asked_since(server, before) == 20
            assert {reason(outcome) for outcome in outcomes} == {"transport"}
            server.faults.clear()
            in_loop(lambda: one.ask("alive again"))
            server.faults.add(Fault(faults.error(500), times=1))
            in_loop(lambda: one.ask("tried again"))

    @pytest.mark.parametrize("effect", [faults.error(400), faults.context_length(), faults.error(429, retry_after=900)])
    def test_a_refusal_is_a_sign_of_life(self, server: Provider, connect: Connect, effect: faults.Effect) -> None:
        server.faults.add(
            Fault(effect, match="refused"), Fault(faults.error(503, retry_after=0), match="hiccup", times=1)
        )
        with connect() as one:
            assert reason(in_loop(lambda: one.outcome("refused")))
            assert in_loop(lambda: one.ask("hiccup")).content

    def test_a_rate_limit_is_waited_for_while_other_calls_find_no_answer(
        self, server: Provider, connect: Connect
    ) -> None:
        server.faults.add(
            Fault(faults.error(500, retry_after=0), match="dead"),
            Fault(faults.error(429, retry_after=0), match="limited", times=2),
        )
        with connect() as one:
            assert reason(in_loop(lambda: one.outcome("dead"))) == "transport"
            assert in_loop(lambda: one.ask("limited")).content

    @pytest.mark.parametrize(
        ("effect", "expected"),
        [(faults.echo_secret(), "authentication"), (faults.insufficient_quota(), "credit")],
        ids=["key refused", "no credit"],
    )
    def test_the_first_refusal_of_the_key_ends_all_calls_to_the_endpoint(
        self, server: Provider, connect: Connect, effect: faults.Effect, expected: str
    ) -> None:
        server.faults.add(Fault(effect))
        before = server.count()
        with connect(slots=2) as one:
            other = one.new_endpoint()

            async def ask() -> list[Reply | Exception]:
                return await asyncio.gather(*(one.outcome(f"{n}") for n in range(40)))

            outcomes = in_loop(ask)
            assert {reason(outcome) for outcome in outcomes} == {expected}
            assert not any(KEY in str(outcome) for outcome in outcomes)
            assert asked_since(server, before) <= 3  # those in flight at that moment
            server.faults.clear()
            reply = in_loop(lambda: one.gateway.complete(one.request("x"), other, Turn(0)))
            assert reply.content

    def test_a_failed_call_is_not_stored(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(500, retry_after=0)))
        with connect() as one:
            in_loop(lambda: one.outcome("lost"))
            assert one.store.get(one.request("lost").key()) is None
            assert one.store.stats()["claims"] == 0

    def test_a_stopped_run_starts_nothing_and_tries_nothing_again(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(503, retry_after=1)))
        before = server.count()
        with connect() as one:

            async def ask() -> list[Reply | Exception]:
                trying = asyncio.create_task(one.outcome("trying"))
                await asyncio.to_thread(until, lambda: server.count() > before)
                one.gateway.stop(CallError("interrupted", "the run was stopped"))
                return [await trying, await one.outcome("new")]

            outcomes = in_loop(ask)
        assert [reason(outcome) for outcome in outcomes] == ["interrupted", "interrupted"]
        assert asked_since(server, before) == 1

    def test_nothing_is_launched_once_the_run_does_not_go_on(self, server: Provider, connect: Connect) -> None:
        before = server.count()
        with connect(settings={"may_launch": lambda: False}) as one:
            assert reason(in_loop(lambda: one.outcome())) == "interrupted"
        assert asked_since(server, before) == 0


class TestStates:
    def test_a_refusal_by_the_content_filter_is_a_reply(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.filter_refusal()))
        before = server.count()
        with connect() as one:
            replies = [in_loop(lambda: one.ask("forbidden")) for _ in range(2)]
        assert asked_since(server, before) == 1
        assert [(reply.finish_reason, reply.content) for reply in replies] == [("content_filter", None)] * 2

    @pytest.mark.parametrize("effect", [faults.no_choices(), faults.choices([])], ids=["no choices", "an empty list"])
    def test_a_reply_without_choices_is_kept(self, server: Provider, connect: Connect, effect: faults.Effect) -> None:
        server.faults.add(Fault(effect))
        before = server.count()
        with connect() as one:
            replies = [in_loop(lambda: one.ask("broken")) for _ in range(2)]
        assert asked_since(server, before) == 1
        assert all(reply.malformed and reply.content is None for reply in replies)

    def test_a_key_in_a_broken_reply_is_not_stored(self, server: Provider, connect: Connect) -> None:
        from pytest_rubrics.redaction import register_secret

        register_secret(KEY)
        server.faults.add(Fault(faults.text(f'{{"detail": "no choices", "{KEY}": 1}}')))
        with connect() as one:
            reply = in_loop(lambda: one.ask("echo"))
        assert reply.malformed
        assert KEY not in reply.malformed


class TestModes:
    def test_offline_calls_nobody(self, server: Provider, connect: Connect) -> None:
        with connect() as one:
            paid = in_loop(lambda: one.ask("known"))
        before = server.count()
        with connect(settings={"mode": "offline"}) as offline:
            assert in_loop(lambda: offline.ask("known")).to_row() == paid.to_row()
            assert reason(in_loop(lambda: offline.outcome("unknown"))) == "cache_miss"
        assert asked_since(server, before) == 0

    @pytest.mark.parametrize("how", ["anew", "refresh"])
    def test_a_new_round_counts_on_and_stays_for_later_runs(self, server: Provider, connect: Connect, how: str) -> None:
        settings: dict[str, Any] = {"mode": "refresh"} if how == "refresh" else {}

        async def round_(one: Caller, anew: bool) -> tuple[int, Reply]:
            opening = one.gateway.opening(one.request("q"), anew=anew, span=3)
            request = one.request("q").again(opening.attempt)
            return opening.attempt, await one.gateway.complete(request, one.endpoint, Turn(0), opening)

        with connect() as former:
            attempt, old = in_loop(lambda: round_(former, False))
            assert attempt == 1
        now = time.time()
        with connect(settings={**settings, "started_at": now, "run": "second"}) as one:
            rounds = [in_loop(lambda: round_(one, how == "anew")) for _ in range(2)]
            assert [number for number, _ in rounds] == [4, 4]  # asked anew once
            new = rounds[0][1]
            assert new.response_id == rounds[1][1].response_id != old.response_id
        with connect(settings={"run": "third", "started_at": time.time()}) as plain:
            attempt, found = in_loop(lambda: round_(plain, False))
            assert (attempt, found.to_row()) == (4, new.to_row())
            assert plain.store.get(plain.request("q").key()) == old.to_row()  # nothing is overwritten

    def test_what_a_run_paid_is_fresh_by_any_clock(self, connect: Connect) -> None:
        settings = {"mode": "refresh", "run": "own"}
        with connect(settings=settings) as late:
            reply = in_loop(lambda: late.ask("q"))
        with connect(settings={**settings, "started_at": reply.at + 60}) as one:  # its clock is ahead
            assert one.gateway.opening(one.request("q"), anew=True).attempt == 1

    def test_a_round_that_failed_leaves_the_former_one_in_force(self, server: Provider, connect: Connect) -> None:
        with connect() as former:
            old = in_loop(lambda: former.ask("q"))
        server.faults.add(Fault(faults.error(400)))
        with connect(settings={"mode": "refresh", "run": "second", "started_at": time.time()}) as one:
            opening = one.gateway.opening(one.request("q"), anew=False)
            request = one.request("q").again(opening.attempt)

            async def ask() -> None:
                with pytest.raises(CallError):
                    await one.gateway.complete(request, one.endpoint, Turn(0), opening)

            in_loop(ask)
        with connect() as plain:
            assert plain.gateway.opening(plain.request("q"), anew=False).attempt == 1
            assert in_loop(lambda: plain.ask("q")).to_row() == old.to_row()


class TestMoney:
    PRICE = Price(input=10.0, output=100.0)

    def test_a_reply_knows_its_cost(self, connect: Connect) -> None:
        with connect(price=self.PRICE) as one:
            reply = in_loop(lambda: one.ask("q"))
        assert reply.cost_usd == self.PRICE.cost(reply.usage) > 0
        assert one.gateway.counters.spent_usd == reply.cost_usd

    def test_without_usage_the_cost_is_unknown(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.changed(lambda body: body.pop("usage"))))
        with connect(price=self.PRICE) as one:
            assert in_loop(lambda: one.ask("q")).cost_usd is None
        with connect(price=Price(0.0, 0.0)) as free:
            assert in_loop(lambda: free.ask("another")).cost_usd == 0

    def test_an_unknown_price_makes_the_cost_unknown(self, connect: Connect) -> None:
        with connect() as one:
            one.endpoint.price = None
            assert in_loop(lambda: one.ask("q")).cost_usd is None

    def test_an_unknown_price_is_refused_where_a_limit_must_hold(self, server: Provider, connect: Connect) -> None:
        before = server.count()
        with connect(settings={"max_cost": 5.0}) as one:
            one.endpoint.price = None
            outcome = in_loop(lambda: one.outcome())
        assert (reason(outcome), asked_since(server, before)) == ("budget", 0)
        assert "the price of openai/model is unknown" in str(outcome)

    def test_the_limit_is_neither_passed_nor_left_unused(self, server: Provider, connect: Connect) -> None:
        with connect(price=self.PRICE) as one:
            cost = in_loop(lambda: one.ask("what one costs")).cost_usd
            assert cost is not None
        limit = cost * 10.5
        with connect(price=self.PRICE, settings={"max_cost": limit, "run": "limited"}, slots=8) as one:
            one.endpoint.max_tokens = 100  # as many as an answer has

            async def ask() -> list[Reply | Exception]:
                return await asyncio.gather(*(one.outcome(f"question {n:02}") for n in range(30)))

            outcomes = in_loop(ask)
        paid = [outcome for outcome in outcomes if isinstance(outcome, Reply)]
        assert {reason(outcome) for outcome in outcomes if not isinstance(outcome, Reply)} == {"budget"}
        assert sum(reply.cost_usd or 0 for reply in paid) <= limit
        assert 8 <= len(paid) <= 10

    def test_large_reservations_of_calls_in_flight_are_waited_for(self, server: Provider, connect: Connect) -> None:
        with connect(price=self.PRICE, settings={"max_cost": 1.0, "run": "reserving"}, slots=8) as one:
            one.endpoint.max_tokens = 6_000  # 0.60 USD: only one call at a time has room

            async def ask() -> list[Reply | Exception]:
                return await asyncio.gather(*(one.outcome(f"reserved {n}") for n in range(8)))

            outcomes = in_loop(ask)
        assert [reason(outcome) for outcome in outcomes] == [None] * 8

    def test_a_failed_call_gives_its_reservation_back(self, server: Provider, connect: Connect) -> None:
        server.faults.add(Fault(faults.error(400), times=3))
        with connect(price=self.PRICE, settings={"max_cost": 1.0, "run": "failing"}, slots=1) as one:
            one.endpoint.max_tokens = 9_000

            async def ask() -> list[Reply | Exception]:
                return [await one.outcome(f"failing {n}") for n in range(4)]

            outcomes = in_loop(ask)
        assert [reason(outcome) for outcome in outcomes] == ["bad_request"] * 3 + [None]

    def test_two_processes_share_the_limit(self, connect: Connect) -> None:
        settings = {"max_cost": 1.0, "run": "shared"}
        with connect(price=self.PRICE, settings=settings) as one, connect(price=self.PRICE, settings=settings) as two:
            for each in (one, two):
                each.endpoint.max_tokens = 100

            async def ask() -> list[Reply | Exception]:
                return await asyncio.gather(*(c.outcome(f"shared {n}") for n in range(100) for c in (one, two)))

            outcomes = in_loop(ask)
            costs = {reply.response_id: reply.cost_usd for reply in outcomes if isinstance(reply, Reply)}
            spent = sum(cost or 0 for cost in costs.values())
            assert 0.9 < spent <= 1.0
            assert {reason(outcome) for outcome in outcomes} == {None, "budget"}
            assert one.store.get("spent:shared") == one.store.get("budget:shared") == round(spent * 1e9)
        assert one.gateway.counters.spent_usd + two.gateway.counters.spent_usd == pytest.approx(spent)

    def test_a_reservation_of_a_dead_process_does_not_hang_the_run(self, connect: Connect) -> None:
        with connect(settings={"max_cost": 1.0}) as one:
            budget: Budget = one.gateway.budget

            async def ask() -> None:
                assert await budget.reserve(0.9)  # never settled
                with pytest.raises(NoRoomYetError) as no_room:
                    await budget.reserve(0.9)
                with pytest.raises(CallError, match="never ended"):
                    await budget.change(no_room.value.seen, patience=0.2)

            in_loop(ask)

    def test_the_input_is_not_estimated_too_low(self) -> None:
        schema = {"type": "json_schema", "json_schema": {"schema": {"enum": [str(n) for n in range(100)]}}}
        plain = Request("m", None, [{"role": "user", "content": "合同法" * 100}])
        assert most_input_tokens(plain) >= 600
        assert most_input_tokens(replace(plain, response_format=schema)) > most_input_tokens(plain) + 200
