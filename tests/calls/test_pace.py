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

from pytest_rubrics.calls.errors import refusal
from pytest_rubrics.calls.pace import LONGEST_PAUSE, SAFETY, Schedule
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.calls.rate_headers import Allowance
from tests.support.faults import FixedWindow, RateLimit, TokenBucket

UNLIMITED = (math.inf, math.inf)
KINDS = [RateLimit, TokenBucket, FixedWindow]


@dataclass
class Simulation:
    """Processes that call as fast as the pace allows, and a provider a few milliseconds away.

    Attributes:
        limit: The provider's.
        rpm: What the user permits.
        processes, slots: How many call, and how many calls each has in flight at most.
        tokens: Tokens of a call.
        counted: How often the provider counts each.
        seed: Of the delays, and of the moment in the provider's window when the first call starts.
        stalls: Stalls of each process per second, of up to a fifth of a second.
    """

    limit: RateLimit
    rpm: float | None = None
    processes: int = 1
    slots: int = 32
    tokens: Callable[[random.Random], int] = lambda _: 100
    counted: int = 1
    seed: int = 0
    stalls: float = 0.0
    started: list[float] = field(default_factory=list)
    most: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.begin = self.now = 1000.0 + self._random.random() * self.limit.seconds
        self.pacer = Pacer(rpm=self.rpm, clock=lambda: self.now)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._in_flight = [0] * self.processes
        self._stalled = [0.0] * self.processes

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        for process in range(self.processes):
            self.later(0.0, self._look, process)
            if self.stalls:
                self.later(0.0, self._stall, process)
        while self._events and self._events[0][0] <= self.begin + seconds:
            self.now, _, event, arguments = heapq.heappop(self._events)
            event(*arguments)
        self.now = self.begin + seconds

    def used(self, since: float) -> float:
        """Which part of what was permitted was taken since so many seconds."""
        return self.limit.used(self.begin + since, self.now)

    def refused(self, since: float) -> float:
        """Which part of the calls was refused since so many seconds."""
        refused, accepted = (
            sum(at >= self.begin + since for at in times)
            for times in (self.limit.refused, [at for at, _ in self.limit.accepted])
        )
        return refused / max(1, refused + accepted)

    def later(self, seconds: float, event: Callable[..., None], *arguments: Any) -> None:
        """Let something happen after so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event, arguments))

    def _stall(self, process: int) -> None:
        self._stalled[process] = self.now + self._random.uniform(0, 0.2)
        self.later(self._random.expovariate(self.stalls), self._stall, process)

    def _look(self, process: int) -> None:
        if self._stalled[process] > self.now:
            self.later(self._stalled[process] - self.now, self._look, process)
        elif self._in_flight[process] >= self.slots:
            self.later(0.01, self._look, process)
        elif wait := self.pacer.wait():
            self.later(wait + self._random.uniform(0, 0.002), self._look, process)
        else:
            tokens = self.pacer.typical_tokens()
            assert self.pacer.take(tokens, alone=self._in_flight[process] == 0)
            self.started.append(self.now)
            self._in_flight[process] += 1
            self.most = max(self.most, sum(self._in_flight))
            self.later(self._random.uniform(0.005, 0.02), self._arrive, process, self.now, tokens)
            self.later(0.0005, self._look, process)

    def _arrive(self, process: int, started: float, tokens: float) -> None:
        used = self.tokens(self._random)
        is_free, headers = self.limit.take(self.now, used * self.counted if self.limit.unit == "tokens" else 1)
        latency = self._random.uniform(0.1, 0.3) if is_free else self._random.uniform(0.005, 0.02)
        self.later(latency, self._hear, process, started, tokens, used if is_free else None, headers)

    def _hear(self, process: int, started: float, tokens: float, used: int | None, headers: dict[str, str]) -> None:
        if self._stalled[process] > self.now:
            self.later(self._stalled[process] - self.now, self._hear, process, started, tokens, used, headers)
            return
        self._in_flight[process] -= 1
        if used is None:
            text = f"Rate limit reached for {self.limit.unit} per min."
            self.pacer.refused(started, tokens, refusal(text, 429, headers))
        else:
            self.pacer.answered(started, tokens, used, headers)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seconds"), [(5, 1.0), (50, 1.0), (100, 10.0), (300, 60.0)])
def test_nearly_all_that_is_permitted_is_used_and_nearly_nothing_refused(
    kind: type[RateLimit], n: int, seconds: float, processes: int
) -> None:
    simulation = Simulation(kind(n, seconds), processes=processes, stalls=0.1)
    simulation.run(660)
    assert simulation.used(60) >= 0.95
    assert simulation.refused(60) < 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seconds", "first"), [(5, 1.0, 60.0), (50, 1.0, 60.0), (600, 60.0, 300.0)])
def test_without_any_headers_too_once_the_limit_is_found(
    kind: type[RateLimit], n: int, seconds: float, first: float
) -> None:
    simulation = Simulation(kind(n, seconds, headers=False))
    simulation.run(first + 600)
    assert simulation.used(first) >= 0.95
    assert simulation.refused(first) < 0.01


def test_a_slow_limit_without_any_headers_is_found_too() -> None:
    simulation = Simulation(RateLimit(3, 60.0, headers=False))
    simulation.run(1860)
    assert simulation.used(60) >= 0.9
    assert simulation.refused(60) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_without_any_headers_are_found_too(kind: type[RateLimit]) -> None:
    limit = kind(60_000, 60.0, unit="tokens", headers=False)
    simulation = Simulation(limit, tokens=lambda source: source.randint(100, 700))
    simulation.run(660)
    assert simulation.used(60) >= 0.9
    assert simulation.refused(60) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_paced_like_calls(kind: type[RateLimit]) -> None:
    limit = kind(60_000, 60.0, unit="tokens")
    simulation = Simulation(limit, tokens=lambda source: source.randint(100, 700), stalls=0.1)
    simulation.run(660)
    assert simulation.used(60) >= 0.95
    assert simulation.refused(60) < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_the_provider_tells_is_not_passed_again(kind: type[RateLimit]) -> None:
    simulation = Simulation(kind(300, 60.0))
    simulation.run(600)
    assert simulation.limit.refused
    assert simulation.refused(120) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_user_of_the_same_limit_takes_is_left_to_them(kind: type[RateLimit]) -> None:
    simulation = Simulation(kind(300, 60.0))
    theirs = []

    def take() -> None:
        theirs.append(simulation.limit.take(simulation.now)[0])
        simulation.later(0.4, take)

    simulation.later(0.0, take)
    simulation.run(1200)
    assert sum(theirs) >= 0.85 * len(theirs)
    assert simulation.used(600) >= 0.95
    assert simulation.refused(600) < 0.1  # theirs are among them


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_the_provider_counts_otherwise_are_measured(kind: type[RateLimit]) -> None:
    limit = kind(12_000, 60.0, unit="tokens")
    simulation = Simulation(limit, tokens=lambda source: source.randint(20, 140), counted=5)
    simulation.run(1200)
    assert simulation.used(300) >= 0.9
    assert simulation.refused(300) < 0.02


def test_numbers_of_one_limit_and_the_window_of_another_are_not_mixed() -> None:
    schedule = Schedule()
    for _ in range(20):
        assert schedule.take(1000.0, 1.0, UNLIMITED, alone=False) == 0
    schedule.refused(1000.1, 1000.0, 1.0, 3600.0, Allowance(0.0, 3600.0, 1000.0), by_tokens=False)  # of a day
    schedule.refused(1000.1, 1000.0, 1.0, 60.0, Allowance(0.0, 60.0, 20.0), by_tokens=False)  # of a minute
    assert schedule.calls.window == 60


def test_without_complaint_all_slots_are_used_at_once() -> None:
    simulation = Simulation(RateLimit(10**9, 1.0), slots=128)
    simulation.run(0.09)
    assert simulation.most == 128


@pytest.mark.parametrize("kind", KINDS)
def test_a_stated_limit_is_never_passed(kind: type[RateLimit]) -> None:
    simulation = Simulation(kind(60, 60.0), rpm=60, processes=2)
    simulation.run(600)
    assert simulation.refused(0) == 0
    assert len(simulation.started) >= 0.95 * 600


def test_a_limit_that_was_thought_too_low_is_found() -> None:
    simulation = Simulation(RateLimit(5, 1.0))
    assert simulation.pacer.take(100.0, alone=True)
    simulation.pacer.refused(simulation.begin, 100.0, refusal("", 429, {"retry-after": "1"}))  # one call a second
    simulation.run(600)
    assert simulation.used(300) >= 0.8


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


def test_an_empty_stock_is_no_window_that_is_used_up() -> None:
    schedule = Schedule()
    for n in range(10):
        assert schedule.take(1000.0 + n / 100, 1.0, UNLIMITED, alone=False) == 0
        left = Allowance(9.0 - n, 6.0 * (n + 1), 10.0)  # full again after a minute, but one call may go after 6 s
        schedule.answered(1000.1 + n / 100, 1000.0 + n / 100, left, 1.0, by_tokens=False)
    assert schedule.resume < 1000.1
    assert schedule.calls.rate(math.inf) == pytest.approx(SAFETY * 10 / 60)


def test_what_a_good_reply_says_is_used_up_pauses_all_calls() -> None:
    schedule = Schedule()
    assert schedule.take(1000.0, 1.0, UNLIMITED, alone=True) == 0
    schedule.answered(1000.1, 1000.0, Allowance(0.0, 2.0, None), 1.0, by_tokens=False)
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
            left = Allowance(passed, wait, 50.0) if wait is not None and wait > 50 else None
            schedule.refused(now, started, 10.0, wait, left, by_tokens=by_tokens)
            longest = max(longest, wait or 0.0)
        elif event == "exhaust":
            schedule.answered(now, started, Allowance(0.0, wait or 0.0, 100.0), 10.0, by_tokens=by_tokens)
            longest = max(longest, wait or 0.0)
        elif event == "give back":
            schedule.give_back(10.0, UNLIMITED)
        assert schedule.resume <= now + max(longest, LONGEST_PAUSE) + 1
        for meter in (schedule.calls, schedule.tokens):
            assert math.isfinite(meter.limit)
            assert meter.limit >= 0
            assert meter.rate(math.inf) > 0
