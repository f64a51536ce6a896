"""The way of one call: stored reply, else slot, claim, a second look, the call, and the reply stored at once."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pytest_rubrics.calls.budget import Budget, NoRoomYetError
from pytest_rubrics.calls.cache import ReplyStore, StoreFullError
from pytest_rubrics.calls.endpoint import Endpoint, Launch, reply_row
from pytest_rubrics.calls.errors import CallError, ProviderError
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.pacing import UNKNOWN_TOKENS
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.reply import Reply, Usage
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.wire import Crossing

CacheMode = Literal["rw", "offline", "refresh", "off"]

ROUND = "round:"  # what keys begin with of the rows that say at which attempt a question's latest round begins
MAX_TRIES = 6  # of a call that meets transient errors other than 429: 0.5 + 1 + 2 + 4 + 8 s of waiting
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
UNKNOWN_OUTPUT_TOKENS = 16_384  # reserved where a call names no max_tokens

# pytest-randomly reseeds the global generator, in every worker alike: jitter would then be no jitter.
_random = random.SystemRandom()


@dataclass(slots=True)
class Counters:
    """What this process has paid."""

    calls: int = 0
    spent_usd: float = 0.0


@dataclass(slots=True, repr=False)
class Gateway:
    """Every call of a run goes through here.

    Attributes:
        store: The store of replies.
        run: Id of this run.
        started_at: When the run began, seconds since the epoch; what arrived later is always a hit.
        mode: Cache mode.
        max_cost: Most USD that the run may spend, or None.
        may_launch: False when no further call may start, e.g. because the controller is gone.
        counters: What this process has paid.
        unsaved: Rows that could not be stored.
    """

    store: ReplyStore
    run: str
    started_at: float
    mode: CacheMode = "rw"
    max_cost: float | None = None
    may_launch: Callable[[], bool] = lambda: True
    counters: Counters = field(default_factory=Counters)
    unsaved: dict[str, Any] = field(default_factory=dict)
    _stopped: CallError | None = None
    _rounds: set[str] | None = None
    _looked_up: tuple[str, Reply] | None = None

    @property
    def budget(self) -> Budget:
        """What the run may spend."""
        return Budget(self.store, self.run, self.max_cost)

    def stop(self, error: CallError) -> None:
        """Start no further call; calls in flight go on."""
        self._stopped = self._stopped or error

    def is_own(self, reply: Reply) -> bool:
        """Whether this run paid for the reply."""
        return reply.run == self.run

    def is_fresh(self, reply: Reply) -> bool:
        """Whether the reply came after this run began: such a reply is never asked for again."""
        return self.is_own(reply) or reply.at >= self.started_at  # clocks of several hosts differ

    def opening(self, request: Request, *, anew: bool, span: int = 1) -> Opening:
        """Where the asks of a question begin.

        Re-asks never overwrite: a new round has the next attempt numbers, and a row remembers where it begins.

        Args:
            request: The question.
            anew: Whether a stored reply of an earlier run does not count.
            span: Attempts that one round may use.
        """
        first = self._first_attempt(request)
        if anew or self.mode == "refresh":
            reply = self._stored(request.again(first).key())
            if reply is not None and not self.is_fresh(reply):
                return Opening(first + span, ROUND + request.question_key())
        return Opening(first, None)

    def _first_attempt(self, request: Request) -> int:
        # Few questions have a round of their own, so that a look at each would be most of what a replay reads. Rounds
        # that another process begins meanwhile are met by their replies: they begin at the same number here.
        rounds = self._known_rounds()
        row = ROUND + request.question_key() if rounds else None
        first = self.store.get(row) if row in rounds else None
        return first if isinstance(first, int) else 1

    def _known_rounds(self) -> set[str]:
        if self._rounds is None:
            self._rounds = set(self.store.keys(ROUND))
        return self._rounds

    def has_reply(self, request: Request) -> bool:
        """Whether a request has a stored reply, which is most likely asked for next."""
        reply = self._stored(request.key())
        self._looked_up = None if reply is None else (request.key(), reply)
        return reply is not None

    async def complete(self, request: Request, endpoint: Endpoint, turn: Turn, opening: Opening | None = None) -> Reply:
        """The reply to a request: the stored one, or a paid one.

        Args:
            request: What to ask.
            endpoint: Whom to ask.
            turn: Place in the queue for slots.
            opening: The round that this ask begins, if it does.

        Raises:
            CallError: There is no reply, with the reason.
        """
        key = request.key()
        while True:
            reply = self._stored(key)
            if reply is not None:
                return reply
            self._check(endpoint)
            no_room: NoRoomYetError | None = None
            async with Launch(endpoint, turn, self._tokens(request, endpoint)) as launch:
                self._check(endpoint)
                if await self._claim(key):
                    try:
                        return await self._claimed(key, request, endpoint, launch, opening)
                    except NoRoomYetError as error:
                        no_room = error
                    finally:
                        await asyncio.shield(self.store.release(key))  # nothing to do where the reply was stored
            # Neither place nor claim is held while waiting.
            if no_room is not None:
                await self.budget.change(no_room.seen, patience=2 * endpoint.timeout + endpoint.retry_for)
            else:
                await self.store.wait(key)

    async def _claim(self, key: str) -> bool:
        try:
            return await self.store.claim(key)
        except StoreFullError as error:
            raise self._full(error) from error

    async def _claimed(
        self,
        key: str,
        request: Request,
        endpoint: Endpoint,
        launch: Launch,
        opening: Opening | None,
    ) -> Reply:
        stored = self._stored(key)  # the owner before may have stored it between our look and our claim
        if stored is not None:
            return stored
        reply = await self._pay(request, endpoint, launch)
        await launch.free_slots()
        rows: dict[str, Any] = {key: reply.to_row()}
        if opening is not None and opening.row is not None:
            rows[opening.row] = opening.attempt
            self._known_rounds().add(opening.row)
        if not endpoint.has_replies:
            rows[reply_row(endpoint.model, endpoint.address)] = True
            endpoint.has_replies = True
        # A cancelled task must not lose what has arrived.
        await asyncio.shield(self._settle(key, rows))
        return reply

    def _stored(self, key: str) -> Reply | None:
        if self._looked_up is not None and self._looked_up[0] == key:
            return self._looked_up[1]
        row = self.store.get(key)
        if row is None:
            row = self.unsaved.get(key)
        return Reply.from_row(row) if isinstance(row, dict) else None

    async def _settle(self, key: str, rows: dict[str, Any]) -> None:
        try:
            await self.store.settle(key, rows)
        except StoreFullError as error:
            self.unsaved.update(rows)
            self._full(error)

    def _full(self, error: StoreFullError) -> CallError:
        """Launch nothing more: what could not be stored would be paid for again."""
        self.stop(CallError("error", str(error)))
        return CallError("error", str(error))

    async def _pay(self, request: Request, endpoint: Endpoint, launch: Launch) -> Reply:
        price = endpoint.known_price()
        reserved = await self._reserve(request, endpoint, price)
        cost: float | None = 0.0
        try:
            reply = await self._try_until_done(request, endpoint, launch)
            cost = _cost(reply, price)
            self.counters.calls += 1
            self.counters.spent_usd += cost or 0.0
            return replace(reply, cost_usd=cost, run=self.run)
        finally:
            await asyncio.shield(self.budget.settle(reserved, cost))

    async def _try_until_done(self, request: Request, endpoint: Endpoint, launch: Launch) -> Reply:
        deadline = time.monotonic() + endpoint.patience
        began = math.inf
        tries = 0
        while True:
            try:
                reply = await self._send(request, endpoint, launch)
                endpoint.succeeded()
                return reply
            except ProviderError as error:
                tries += 1
                began = min(began, launch.started)
                deadline += launch.queued  # time in a queue is not time of trying
                delay = launch.refused(error) if error.rate_limited else _delay(error, tries)
                launch.again_at = time.monotonic() + delay
                if not self._worth_another(error, endpoint, tries, launch.again_at - deadline):
                    if error.transient and not error.rate_limited:  # any other refusal is a sign of life
                        endpoint.gave_up(since=began)
                    raise _final(error, endpoint, tries) from error
                must_sleep = not error.rate_limited
            await launch.leave()  # a slot is never held while waiting
            if must_sleep:
                await asyncio.sleep(delay)

    @staticmethod
    def _worth_another(error: ProviderError, endpoint: Endpoint, tries: int, late_by: float) -> bool:
        if not error.transient or late_by > 0:
            return False
        return error.rate_limited or (tries < MAX_TRIES and not endpoint.down)

    async def _send(self, request: Request, endpoint: Endpoint, launch: Launch) -> Reply:
        crossing = Crossing(launch, lambda: self._check(endpoint))
        if endpoint.send is not None:
            await crossing.enter()
            return await endpoint.send(request)
        from pytest_rubrics.calls.transport import send

        wire = await endpoint.wire()
        try:
            received = await send(
                request,
                api_base=wire.api_base,
                api_key=wire.api_key,
                headers=wire.headers,
                timeout=endpoint.timeout,
                client=endpoint.client,
                crossing=crossing,
                price=endpoint.price,
            )
            launch.answered(received.reply, received.headers)
            return received.reply
        except ProviderError as error:
            if error.filtered:
                return Reply(finish_reason="content_filter", at=time.time())
            if error.malformed:
                return Reply(malformed=_shown(error), at=time.time())
            if error.reason in {"authentication", "credit"}:
                endpoint.closed = _final(error, endpoint, tries=1)
            if error.transient and error.status != 429:
                endpoint.disconnect()
            raise

    @staticmethod
    def _tokens(request: Request, endpoint: Endpoint) -> float:
        if not endpoint.pacer.counts_tokens:
            return endpoint.pacer.typical_tokens()
        return endpoint.pacer.typical_tokens(most_input_tokens(request) / 2 + UNKNOWN_TOKENS)

    def _check(self, endpoint: Endpoint) -> None:
        if self.mode == "offline":
            raise CallError("cache_miss", "the reply is not in the cache, and --cache-mode offline forbids the call")
        error = self._stopped or endpoint.closed
        if error is not None:
            raise CallError(error.reason, str(error))
        if not self.may_launch():
            raise CallError("interrupted", "the run was stopped")

    async def _reserve(self, request: Request, endpoint: Endpoint, price: Price | None) -> int:
        if self.budget.limit is None or endpoint.send is not None:
            return 0
        if price is None:
            fix = "Give it a price, in its file or in configs/prices.yaml."
            raise CallError("budget", f"the price of {endpoint.model} is unknown, so --max-cost cannot hold. {fix}")
        most = Usage(most_input_tokens(request), endpoint.max_tokens or UNKNOWN_OUTPUT_TOKENS)
        try:
            return await self.budget.reserve(price.cost(most))
        except StoreFullError as error:
            raise self._full(error) from error


@dataclass(frozen=True, slots=True)
class Opening:
    """The first ask of a round: its attempt number, and the row that will remember it if the round is new."""

    attempt: int
    row: str | None


def most_input_tokens(request: Request) -> int:
    """An upper guess of a request's input tokens: two for a CJK character, one for two others."""
    text = "".join(str(message.get("content") or "") for message in request.messages)
    text += json.dumps([request.response_format, request.tools], ensure_ascii=False, default=dict)
    wide = sum(character >= "\u2e80" for character in text)
    return wide * 2 + (len(text) - wide) // 2 + 50


def _delay(error: ProviderError, tries: int) -> float:
    """Seconds until the next try: what the provider asked for, else exponential with full jitter on its upper half."""
    if error.retry_after is not None:
        return error.retry_after + _random.uniform(0, 0.25)
    return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (tries - 1)) * _random.uniform(0.5, 1.0))


def _final(error: ProviderError, endpoint: Endpoint, tries: int) -> CallError:
    times = "" if tries == 1 else f" after {tries} tries"
    status = "" if error.status is None else f" (HTTP {error.status})"
    return CallError(error.reason, f"{endpoint.name}{status}{times}: {_shown(error)}")


def _shown(error: ProviderError) -> str:
    """The provider's words as they may be stored: some servers repeat the key that they were given."""
    from pytest_rubrics.redaction import redact

    return redact(str(error))[:500]


def _cost(reply: Reply, price: Price | None) -> float | None:
    """What a reply cost in USD; None where the price is unknown, or the provider did not say how much it used."""
    if price is None or (reply.usage == Usage() and price.cost(Usage(1, 1)) > 0):
        return None
    return price.cost(reply.usage)
