"""The schedule against simulated providers, on a clock of its own: hours in a moment."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rubrics.calls.pace import LONGEST_PAUSE, Schedule
from tests.support.faults import FixedWindow, RateLimit, TokenBucket

UNLIMITED = (math.inf, math.inf)
KINDS = [RateLimit, TokenBucket, FixedWindow]


@dataclass
class Simulation:
    """Processes that call as fast as the schedule allows, and a provider a few milliseconds away.

    Attributes:
        limit: The provider's.
        stated: What the user permits, per second.
        processes, slots: How many call, and how many calls each has in flight at most.
        tokens: Tokens of a call.
        seed: Of the delays.
    """

    limit: RateLimit
    stated: tuple[float, float] = UNLIMITED
    processes: int = 1
    slots: int = 32
    tokens: Callable[[random.Random], int] = lambda _: 100
    seed: int = 0
    schedule: Schedule = field(default_factory=Schedule)
    started: list[float] = field(default_factory=list)
    most: int = 0

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self._random = random.Random(self.seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._in_flight = [0] * self.processes
        for process in range(self.processes):
            self._later(1000.0, self._look, process)
        while self._events:
            now, _, event, arguments = heapq.heappop(self._events)
            if now > 1000 + seconds:
                return
            event(now, *arguments)

    def used(self, since: float) -> float:
        """How much was taken since so many seconds."""
        return sum(amount for at, amount in self.limit.accepted if at >= 1000 + since)

    def refused(self, since: float) -> int:
        """How many calls were refused since so many seconds."""
        return sum(at >= 1000 + since for at in self.limit.refused)

    def _later(self, at: float, event: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event, arguments))

    def _look(self, now: float, process: int) -> None:
        if self._in_flight[process] >= self.slots:
            self._later(now + 0.01, self._look, process)
            return
        wait = self.schedule.take(now, 100.0, self.stated, alone=self._in_flight[process] == 0)
        if wait > 0:
            self._later(now + wait + self._random.uniform(0, 0.002), self._look, process)
            return
        self.started.append(now)
        self._in_flight[process] += 1
        self.most = max(self.most, sum(self._in_flight))
        self._later(now + self._random.uniform(0.005, 0.02), self._arrive, process, now)
        self._later(now + 0.0005, self._look, process)

    def _arrive(self, now: float, process: int, started: float) -> None:
        tokens = self.tokens(self._random)
        is_free, headers = self.limit.take(now, tokens if self.limit.unit == "tokens" else 1)
        latency = self._random.uniform(0.1, 0.3) if is_free else self._random.uniform(0.005, 0.02)
        self._later(now + latency, self._hear, process, started, tokens, is_free, headers)

    def _hear(
        self, now: float, process: int, started: float, tokens: int, is_free: bool, headers: dict[str, str]
    ) -> None:
        self._in_flight[process] -= 1
        by_tokens = self.limit.unit == "tokens"
        if is_free:
            self.schedule.settle(started, tokens - 100.0, self.stated)
        else:
            wait = float(headers["retry-after-ms"]) / 1000 if headers else None
            self.schedule.refused(now, started, 100.0, wait, by_tokens=by_tokens)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seconds"), [(5, 1.0), (50, 1.0), (100, 10.0), (600, 60.0)])
def test_nearly_all_that_is_permitted_is_used_and_nearly_nothing_refused(
    kind: type[RateLimit], n: int, seconds: float, processes: int
) -> None:
    simulation = Simulation(kind(n, seconds), processes=processes)
    simulation.run(660)
    assert simulation.used(60) >= 0.95 * 600 * n / seconds
    assert simulation.refused(60) < 0.01 * len([at for at in simulation.started if at >= 1060])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seconds"), [(5, 1.0), (50, 1.0), (600, 60.0)])
def test_without_any_headers_too_once_the_limit_is_found(kind: type[RateLimit], n: int, seconds: float) -> None:
    simulation = Simulation(kind(n, seconds, headers=False))
    simulation.run(1800)
    assert simulation.used(600) >= 0.95 * 1200 * n / seconds
    assert simulation.refused(600) < 0.01 * len([at for at in simulation.started if at >= 1600])


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_paced_like_calls(kind: type[RateLimit]) -> None:
    limit = kind(60_000, 60.0, unit="tokens")
    simulation = Simulation(limit, tokens=lambda source: source.randint(50, 150))
    simulation.run(660)
    assert simulation.used(60) >= 0.95 * 600_000
    assert simulation.refused(60) < 0.02 * len([at for at in simulation.started if at >= 1060])


def test_without_complaint_all_slots_are_used_at_once() -> None:
    simulation = Simulation(RateLimit(10**9, 1.0), slots=128)
    simulation.run(0.09)
    assert simulation.most == 128


@pytest.mark.parametrize("kind", KINDS)
def test_a_stated_limit_is_never_passed(kind: type[RateLimit]) -> None:
    simulation = Simulation(kind(60, 60.0), stated=(0.98, math.inf), processes=2)
    simulation.run(600)
    assert simulation.refused(0) == 0
    assert simulation.used(0) >= 0.95 * 600


def test_a_limit_that_was_thought_too_low_is_found() -> None:
    simulation = Simulation(RateLimit(5, 1.0))
    simulation.schedule.take(999.0, 100.0, UNLIMITED, alone=True)
    simulation.schedule.refused(999.1, 999.0, 100.0, 1.0, by_tokens=False)  # so that it begins at one call a second
    simulation.run(600)
    assert simulation.used(300) >= 0.8 * 300 * 5


def test_all_refusals_of_one_burst_are_one_episode() -> None:
    schedule = Schedule()
    for _ in range(100):
        assert schedule.take(1000.0, 1.0, UNLIMITED, alone=False) == 0
    for n in range(90):
        schedule.refused(1000.1 + n / 1000, 1000.0, 1.0, 10.0, by_tokens=False)
    assert schedule.cut == 1000.1
    assert schedule.calls.limit == pytest.approx(1, rel=0.05)  # ten calls in ten seconds
    assert schedule.take(1005.0, 1.0, UNLIMITED, alone=False) > 0
    assert schedule.take(1010.8, 1.0, UNLIMITED, alone=False) == 0


def test_tokens_of_calls_before_a_pause_do_not_count_after_it() -> None:
    schedule = Schedule()
    for _ in range(3):
        assert schedule.take(1000.0, 1000.0, UNLIMITED, alone=False) == 0
    schedule.refused(1000.1, 1000.0, 1000.0, 1.0, by_tokens=True)
    schedule.settle(1000.0, -900.0, UNLIMITED)
    assert schedule.tokens.spent == 0


def test_what_a_good_reply_says_is_used_up_pauses_all_calls() -> None:
    schedule = Schedule()
    assert schedule.take(1000.0, 1.0, UNLIMITED, alone=True) == 0
    schedule.exhausted(1000.1, 1000.0, 2.0, 60.0, by_tokens=False)
    assert schedule.take(1001.9, 1.0, UNLIMITED, alone=True) > 0
    assert schedule.take(1002.0, 1.0, UNLIMITED, alone=True) == 0


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 50), st.sampled_from(["take", "refuse", "exhaust", "give back"]), st.none() | st.floats(0, 100)
    ),
    max_size=60,
)


@given(EVENTS, st.booleans())
@settings(deadline=None)
def test_whatever_happens_the_next_call_comes_in_finite_time(
    events: list[tuple[float, str, float | None]], by_tokens: bool
) -> None:
    schedule, now, started = Schedule(), 1000.0, 1000.0
    longest = 0.0
    for passed, event, wait in events:
        now += passed
        if event == "take" and schedule.take(now, 10.0, UNLIMITED, alone=False) == 0:
            started = now
        elif event == "refuse":
            schedule.refused(now, started, 10.0, wait, by_tokens=by_tokens)
            longest = max(longest, wait or 0.0)
        elif event == "exhaust":
            schedule.exhausted(now, started, wait or 0.0, 100.0, by_tokens=by_tokens)
            longest = max(longest, wait or 0.0)
        elif event == "give back":
            schedule.give_back(10.0, UNLIMITED)
        assert schedule.resume <= now + max(longest, LONGEST_PAUSE) + 1
        for meter in (schedule.calls, schedule.tokens):
            assert math.isfinite(meter.limit)
            assert meter.limit >= 0
            assert meter.rate(math.inf) > 0
