"""When the next call may start, so that what a provider permits is used and not passed. Pure arithmetic on a clock.

A provider that refuses has shown what it permits: what it took between two moments at which it was exhausted, over the
time between them. From then on calls start evenly at that rate, a little below it at first, and ever faster while
nothing complains: slowly near the known limit, fast far above it. The curve is that of TCP CUBIC (RFC 9438).

A provider that tells its limit in numbers is believed as soon as they are used up, and calls never start faster. What
is measured counts beside that only once it was measured for as long as the provider counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pytest_rubrics.calls.rate_headers import Allowance

SAFETY = 0.98  # part of a limit in numbers that is used: calls that arrive unevenly would pass the whole of it
CUT = 0.03  # part of the rate that is given up after a refusal, until it has grown back
STEP = 0.01  # part of the limit that is given up where a small growth was too much
FEWEST, MOST = 30.0, 800.0  # calls until the rate is back, at least and at most
QUICK = 20.0  # seconds instead, where so many calls would take longer
PROBE = 2.5  # calls: a pause was too short if fewer were taken before the next refusal, and that came sooner
NEAR, FAR = 3.0, 2.0  # how much longer that takes after a growth that was small, and after one that was not
CATCH_UP = 0.01  # seconds of pace that a late start may make up for: the provider's window may be a short one
ALONE = 2.0  # seconds without a call after which what was taken before says nothing of the limit
MARGIN = 0.03  # seconds behind the moment that a provider names
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds, where it names none
SHORTEST_GAP, LONGEST_GAP = 0.1, 2.0  # seconds in which a refusal is waited for
LONGEST_STEP = 0.5  # seconds that calls start later after a pause, for the sake of their evenness
FORGET = 600.0  # seconds without a call after which what was learned counts no more


@dataclass(slots=True)
class Meter:
    """The pace of one unit: calls, or tokens.

    Attributes:
        limit: Units per second that the provider takes, as far as is known; 0 as long as it has never refused.
        period: Units after a cut until the rate is at the limit again. The longer, the surer is the limit.
        grown: Units started at the full pace since the last cut.
        spent: Units started since the last pause.
        idle: Seconds since the last pause in which the pace held nobody up.
        since: When the last pause ended.
        ready: When the next may start.
        size: Typical units of a call.
        taken, took: Units and seconds that the limit was last measured by.
        reached: What the limit may be by the rate at which the provider refused, where that was not at once; else 0.
        floor: A limit that held for long before the last raise; 0 once it was used.
        quota: Units that the provider says it permits in a window; 0 where it does not say.
        window: Seconds of that window: the longest after which it wanted to permit more.
        scarce: Whether they were ever used up: 1 or 0.
        credit: Units that calls were thought to use and did not use, for the next ones.
    """

    limit: float = 0.0
    period: float = 0.0
    grown: float = 0.0
    spent: float = 0.0
    idle: float = 0.0
    since: float = 0.0
    ready: float = 0.0
    size: float = 1.0
    taken: float = 0.0
    took: float = 0.0
    reached: float = 0.0
    floor: float = 0.0
    quota: float = 0.0
    window: float = 0.0
    scarce: float = 0.0
    credit: float = 0.0

    def rate(self, stated: float) -> float:
        """Units per second now.

        Args:
            stated: What the user permits, or infinity.
        """
        return min(stated, self._said, self._found)

    @property
    def is_paced(self) -> bool:
        """Whether anything is known of what the provider permits."""
        return math.isfinite(self.rate(math.inf))

    @property
    def _said(self) -> float:
        return SAFETY * self.quota / self.window if self.quota and self.scarce else math.inf

    @property
    def _found(self) -> float:
        return self.limit * self._growth if self.limit else math.inf

    @property
    def _growth(self) -> float:
        return 1 + CUT * (self.grown / self.period - 1) ** 3

    def spend(self, now: float, amount: float, stated: float) -> None:
        """Start a call."""
        self.spent += amount
        self.size += (amount - self.size) / 16
        rate = self.rate(stated)
        if math.isinf(rate):
            return
        late = (1 - SAFETY) / 2 * self.window if rate == self._said else CATCH_UP
        base = max(self.ready, now - late)
        self.idle += base - self.ready
        if base == self.ready and rate == self._found:
            self.grown += amount  # a pace that held nobody up has not been tried
        used = min(self.credit, amount)
        self.credit -= used
        self.ready = base + (amount - used) / rate

    def give_back(self, amount: float, stated: float) -> None:
        """A call did not start after all."""
        self.spent -= amount
        self.ready -= amount / self.rate(stated)

    def correct(self, amount: float, stated: float) -> None:
        """A call used so much more than was thought when it started; less, if negative."""
        self.spent += amount
        if amount > 0:
            self.ready += amount / self.rate(stated)
        elif self.rate(stated) < math.inf:
            self.credit -= amount

    def begin(self, now: float) -> None:
        """Measure from now on."""
        self.spent = self.idle = self.grown = self.credit = 0.0
        self.since = self.ready = now

    def hold(self, until: float) -> None:
        """Nothing starts before."""
        self.ready, self.credit = until, 0.0
        if not self.spent:
            self.since = until

    def hear(self, left: Allowance, amount: float) -> None:
        """The provider said how much it permits.

        Where it permits so much in each window of time, it names the whole length at the start of one; where it has a
        stock that refills, when that is empty.

        Args:
            left: What it said.
            amount: How much a call uses.
        """
        if self.quota != (left.limit or 0.0):
            self.quota, self.window, self.scarce = left.limit or 0.0, 0.0, 0.0
        self.window = max(self.window, left.seconds)
        if left.remaining < amount and left.seconds:
            self.scarce = 1.0

    def is_news(self, left: Allowance, amount: float) -> bool:
        """Whether what a good reply said changes anything."""
        is_more = left.seconds > 1.001 * self.window or (left.limit or 0.0) != self.quota
        return left.seconds > 0 and (left.remaining < amount or is_more)

    def learn(self, now: float, resume: float, slack: float) -> None:
        """The provider is exhausted.

        Args:
            now: The time.
            resume: When it is asked again.
            slack: How many seconds earlier it may be ready.
        """
        if self._said < self._found and self._believe(resume):
            return
        self.taken = max(self.spent, self.size / 2)
        self.took = max(resume - self.since - self.idle, 1e-3)
        sustained, self.reached, self.floor = self.floor, 0.0, 0.0
        if not self.limit:
            # How long the first calls took to start says nothing, only how long the provider wants to recover.
            self.took = max(resume - now, 1e-3)
            self.limit = self.taken / self.took
            self.period = self._shortest(is_sure=True)
        elif self.grown > self.period / 2:
            growth = self._growth
            is_near = growth < 1 + 2 * CUT
            self.floor = self.limit * min(growth, 1.0)
            self.reached = self.limit * (growth * (1 - STEP) if is_near else (1 + 2 * growth) / 3)
            self.period = min((NEAR if is_near else FAR) * self.period, MOST * self.size)
        elif sustained:  # the last raise was too much
            self.reached = sustained
        else:  # soon after the last refusal: what it took in between is all it takes
            expected = self.took * self.limit
            is_news = abs(self.taken - expected) > 2 * self.size
            known = max(self.period / 2 - self.taken, 0.0)
            known *= min(self.taken / expected, expected / self.taken) ** 2 if is_news else 1.0
            self.taken += known
            self.took += known / self.limit
            self.period = min(self.period, max(self.period / 2, self._shortest(is_sure=False)))
        self.begin(resume)
        self._settle(resume - now, slack)

    def _believe(self, resume: float) -> bool:
        """Keep to what the provider said as long as too little is known to measure it; whether that is so."""
        rest = self.window - (resume - self.since)
        said, self.took = self.quota / self.window, 0.0
        if not self.limit:
            self.limit, self.taken = said, self.quota
            self.period = self._shortest(is_sure=True)
            self.begin(resume)
            self.grown = self.period / 2
        elif rest > 0:
            self.limit = (self.spent + said * rest) / self.window
            self.hold(resume)
        else:
            return False
        return True

    def go_on(self) -> None:
        """The few that were taken since the last pause belong to the measurement before it."""
        if self.took:
            self.taken += self.spent
            self.spent = 0.0

    def amend(self, refused: float, pause: float, later: float, slack: float) -> None:
        """One more call of the last measurement was refused, and the pause lasts so much longer."""
        if not self.took:
            self.spent = max(0.0, self.spent - refused)
            self.hold(self.ready + later)
            return
        self.taken = max(self.taken - refused, self.size / 2)
        self.took += later
        self.since += later
        self.ready = max(self.ready, self.since)
        self._settle(pause, slack)
        if not self.reached:
            is_guess = not refused and slack > self.took / 10  # asked again in vain
            self.period = min(self.period, self._shortest(is_sure=not is_guess))

    def _shortest(self, *, is_sure: bool) -> float:
        calls = FEWEST if is_sure else min(FEWEST, max(1.0, QUICK * self.limit / self.size))
        # No sooner than the provider can notice: it may take as much at once.
        return min(max(calls, self.taken / self.size), MOST) * self.size

    def _settle(self, pause: float, slack: float) -> None:
        self.limit = self.taken / self.took
        if not self.reached:
            return
        # Where a short pause is enough, the provider takes nearly what was tried. Where it is long, a stock had been
        # used up, and only what it took from pause to pause counts.
        if pause - slack < self.took / 30:
            self.limit = max(self.limit, min(self.reached, 1.5 * self.limit))
        else:
            self.limit = self.taken / (self.took - slack)


@dataclass(slots=True)
class Schedule:
    """The pace of an endpoint, in calls and in tokens, and its pauses. Times are those of one clock.

    Attributes:
        calls, tokens: The two paces.
        cut: When the last episode of refusals began; refusals of calls that started earlier belong to it.
        resume: Until when nothing starts.
        last: When the last call started.
        probes: How often a pause of unnamed length was doubled, since too little was taken after the one before it.
        gap: Seconds that the next call has before another may follow; 0 once it has started.
        slack: Seconds of the pause that may have been too many.
    """

    calls: Meter = field(default_factory=Meter)
    tokens: Meter = field(default_factory=Meter)
    cut: float = 0.0
    resume: float = 0.0
    last: float = 0.0
    probes: float = 0.0
    gap: float = 0.0
    slack: float = 0.0

    def take(self, now: float, tokens: float, stated: tuple[float, float], *, alone: bool) -> float:
        """Start a call, if it is time.

        Args:
            now: The time.
            tokens: How many it will use, as far as one can tell.
            stated: Calls and tokens per second that the user permits.
            alone: Whether the caller has no other call in flight.

        Returns:
            0 if it starts, else seconds after which to ask again.
        """
        meters = (self.calls, self.tokens)
        if not now - FORGET < self.last < now + 1:  # a time to come is that of another clock
            self.calls, self.tokens = meters = (Meter(since=now, ready=now), Meter(since=now, ready=now, size=tokens))
            self.cut = self.resume = self.probes = self.gap = 0.0
        wait = max(self.resume, *(meter.ready for meter in meters)) - now
        if wait > 0:
            return wait
        if alone and now - self.last > ALONE:
            for meter in meters:
                if not meter.is_paced:
                    meter.begin(now)
        self.calls.spend(now, 1.0, stated[0])
        self.tokens.spend(now, tokens, stated[1])
        self.last = now
        if self.gap:  # the first call after a pause goes alone, until it would have been refused
            self.calls.ready = max(self.calls.ready, now + self.gap)
            self.gap = 0.0
        return 0.0

    def give_back(self, tokens: float, stated: tuple[float, float]) -> None:
        """A call did not start after all."""
        self.calls.give_back(1.0, stated[0])
        self.tokens.give_back(tokens, stated[1])

    def settle(self, started: float, difference: float, stated: tuple[float, float]) -> None:
        """A call used so many more tokens than was thought when it started; fewer, if negative."""
        if started >= self.cut:  # those of a former episode say nothing of what was taken since
            self.tokens.correct(difference, stated[1])

    def refused(
        self,
        now: float,
        started: float,
        tokens: float,
        wait: float | None,
        left: Allowance | None = None,
        *,
        by_tokens: bool,
    ) -> float:
        """A call was refused.

        Args:
            now: The time.
            started: When the call started.
            tokens: How many it was thought to use.
            wait: Seconds that the provider asked to wait, or None.
            left: What the refusal said about how much is left, or None.
            by_tokens: Whether tokens are what it had too many of.

        Returns:
            Seconds until calls start again.
        """
        meter, refused = (self.tokens, tokens) if by_tokens else (self.calls, 1.0)
        if left:
            meter.hear(left, refused)
        if started < self.cut:
            self._prolong(meter, refused, now if wait is None else now + wait + MARGIN, 0.0)
            return max(0.0, self.resume - now)
        self.calls.spent -= 1
        self.tokens.spent -= tokens
        self.gap = min(max(1.5 * (now - started), SHORTEST_GAP), LONGEST_GAP)
        # What is left at the end of a window may do for a small call.
        few = (PROBE if now - meter.since < self.slack else 0.5) * meter.size
        is_probe = meter.is_paced and meter.spent < few
        self.probes = self.probes + 1 if is_probe else self.probes // 2
        if wait is None:
            pause = slack = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self.probes)
        else:
            pause = wait + MARGIN
            slack = MARGIN + (min(wait, 1.0) if wait == round(wait) else 0.0)  # whole seconds are rounded up
        if is_probe:
            meter.go_on()
            self._prolong(meter, 0.0, now + pause, slack)
        else:
            step = min(meter.size / meter.rate(math.inf) / 2, LONGEST_STEP)
            self._pause_all(now, now + pause, meter, slack)
            # Half a step beside those that filled the provider's window: none is a moment too early.
            self.resume += step
            meter.hold(self.resume)
        return max(0.0, self.resume - now)

    def answered(self, now: float, started: float, left: Allowance, amount: float, *, by_tokens: bool) -> None:
        """A good reply said how much is left.

        Args:
            now: The time.
            started: When the call started.
            left: What the reply said.
            amount: How much a call uses.
            by_tokens: Whether it is about tokens.
        """
        meter = self.tokens if by_tokens else self.calls
        meter.hear(left, amount)
        until = started + left.seconds
        if left.remaining >= amount or until <= max(now, self.resume) or started < self.cut:
            return
        if left.limit and left.seconds * left.limit >= meter.window * (left.limit - amount):
            return  # a stock: that is the time until it is full again, but it refills at a known rate
        if meter.is_paced:
            self.resume = until
        else:
            self._pause_all(now, until, meter, 0.0)

    def _pause_all(self, now: float, until: float, meter: Meter, slack: float) -> None:
        self.cut = now
        self.resume = max(self.resume, until)
        self.slack = slack
        meter.learn(now, self.resume, slack)
        for other in (self.calls, self.tokens):
            if other is not meter:
                other.begin(self.resume)

    def _prolong(self, meter: Meter, refused: float, until: float, slack: float) -> None:
        later = max(0.0, until - self.resume)
        self.resume += later
        self.slack = slack or self.slack
        meter.amend(refused, self.resume - self.cut, later, self.slack)
