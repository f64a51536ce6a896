"""An address that is called, with its limits and what this run has learned about it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_rubrics.calls.errors import CallError, ProviderError
from pytest_rubrics.calls.limits import LocalSlots, Slots, Turn
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.calls.prices import Price, listed_price
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request

Client = Literal["litellm", "openai"]


LONGEST_SLEEP = 5.0  # seconds between two looks whether a pause has changed


@dataclass(frozen=True, slots=True)
class Wire:
    """What is needed to reach an endpoint, and never stored.

    Attributes:
        api_base: Base URL, or None for the provider's own.
        api_key: The key, or None where the client reads its own variable.
        headers: Extra HTTP headers.
    """

    api_base: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class Endpoint:
    """A model at an address.

    Attributes:
        name: Display name, for messages.
        model: LiteLLM model string.
        address: What stands in the key: base URL, or the identity of a served model.
        connect: Gives the wire; blocking, called once before the first call. It may start a local server.
        timeout: Seconds for one call.
        retry_for: Seconds in which a call that was rate limited is tried again.
        slots: Every limit that a call must respect.
        price: USD per million tokens, or None where it is not given.
        max_tokens: Most output tokens of a call, for reserving its cost.
        client: The library that calls it.
        send: How it is asked, where that is the business of no client; what it costs is then unknown.
        pacer: When a call may start; it knows the provider's limits.
        gate: Passed one at a time while there is a pace.
        places: For calls in flight, and for some that are made ready to follow them.
        in_flight: Calls on the wire, and those whose replies have not been stored.
        rate_limited: Replies of status 429 so far.
        closed: Why it is not called any more, or None.
        has_replies: Whether the row that says so has been stored.
    """

    name: str
    model: str
    address: str | Mapping[str, Any] | None
    connect: Callable[[], Wire]
    timeout: float
    retry_for: float
    slots: Sequence[Slots]
    price: Price | None = None
    max_tokens: int | None = None
    client: Client = "litellm"
    send: Callable[[Request], Awaitable[Reply]] | None = None
    pacer: Pacer = field(default_factory=Pacer)
    gate: LocalSlots = field(default_factory=lambda: LocalSlots(1, lambda: None))
    in_flight: int = 0
    rate_limited: int = 0
    closed: CallError | None = None
    has_replies: bool = False
    places: LocalSlots = field(init=False)
    _wire: Wire | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _last_success: float = 0.0
    _down: bool = False

    def __post_init__(self) -> None:
        self.places = LocalSlots(self.width + min(slots.ahead for slots in self.slots), lambda: None)

    @property
    def identity(self) -> str:
        """Short hash of model and address: what facts about the endpoint are stored under."""
        return _identity(self.model, self.address)

    def known_price(self) -> Price | None:
        """The given price, else that of LiteLLM's table, which lists no server of one's own."""
        if self.price is None and self.send is None and self.client == "litellm":
            return listed_price(self.model)
        return self.price

    @property
    def idle(self) -> int:
        """Calls that could be made ready at once, less those that wait for their turn in the pace."""
        return min(slots.idle + slots.ahead for slots in self.slots) - (1 - self.gate.idle)

    @property
    def width(self) -> int:
        """Most calls in flight at once."""
        return min(slots.count for slots in self.slots)

    @property
    def patience(self) -> float:
        """Seconds for which a call is tried, without its waiting in queues."""
        return self.retry_for + self.timeout

    async def wire(self) -> Wire:
        """Connect once.

        Raises:
            CallError: A key is missing, or a local server did not start.
        """
        async with self._connecting:
            if self._wire is None:
                if self.closed:
                    raise self.closed
                try:
                    self._wire = await asyncio.to_thread(self.connect)
                except CallError as error:
                    self.closed = error
                    raise
            return self._wire

    def disconnect(self) -> None:
        """Ask for the wire anew before the next try: a local server may have to be started again."""
        self._wire = None

    def succeeded(self) -> None:
        """A call went through: the endpoint is up."""
        self._last_success = time.monotonic()
        self._down = False

    def gave_up(self, since: float) -> None:
        """A call used up all its tries; with no success beside it the endpoint counts as down."""
        self._down = self._last_success < since

    @property
    def down(self) -> bool:
        """Whether a call that fails should not be tried again: others have tried long enough."""
        return self._down


@dataclass(slots=True, repr=False)
class Launch:
    """The way of one call onto the wire: a place among those that are made ready, its turn in the pace, and slots.

    Of the pace and the slots neither is held while the call waits for the other.

    Attributes:
        endpoint: Whom it calls.
        turn: Its place in the queues.
        tokens: How many it will use, as far as one can tell.
        started: When it last got its slots, by the monotonic clock.
        again_at: When it wants to start again.
        queued: Seconds for which it last waited for its slots, longer than it wanted.
    """

    endpoint: Endpoint
    turn: Turn
    tokens: float
    started: float = 0.0
    again_at: float = 0.0
    queued: float = 0.0
    _place: AsyncExitStack = field(default_factory=AsyncExitStack)
    _slots: AsyncExitStack = field(default_factory=AsyncExitStack)
    _is_in_flight: bool = False
    _is_sent: bool = False

    async def __aenter__(self) -> Launch:
        await self._place.enter_async_context(self.endpoint.places.slot(self.turn))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()
        await self._place.aclose()

    async def take(self) -> None:
        """Wait until the call may start."""
        since = max(time.monotonic(), self.again_at)
        await self._take()
        self.queued = max(0.0, time.monotonic() - since)

    async def _take(self) -> None:
        gate, pacer = self.endpoint.gate, self.endpoint.pacer
        if gate.held == 0 and not pacer.wait() and await self._start():
            return
        while True:
            async with gate.slot(self.turn):
                # Whoever is awaited by now goes first.
                while not gate.is_wanted_before(self.turn):
                    if wait := pacer.wait():
                        await asyncio.sleep(min(wait, LONGEST_SLEEP))
                    elif await self._start():
                        return

    async def _start(self) -> bool:
        async with AsyncExitStack() as slots:
            for one in self.endpoint.slots:
                await slots.enter_async_context(one.slot(self.turn))
            if not self.endpoint.pacer.take(self.tokens, alone=self.endpoint.in_flight == 0):
                return False
            self.started, self._is_sent = time.monotonic(), False
            self.endpoint.in_flight += not self._is_in_flight
            self._is_in_flight = True
            self._slots = slots.pop_all()
            return True

    async def free_slots(self) -> None:
        """Let another call have the slots; this one still counts as in flight."""
        await self._slots.aclose()

    async def leave(self) -> None:
        """Give back the slots, and the place in the pace where it was not used."""
        if not self._is_in_flight:
            return
        self._is_in_flight = False
        self.endpoint.in_flight -= 1
        if not self._is_sent:
            self.endpoint.pacer.give_back(self.tokens)
        await self.free_slots()

    def sent(self) -> None:
        """The call goes onto the wire."""
        self._is_sent = True

    def answered(self, reply: Reply, headers: Mapping[str, str]) -> None:
        """The provider answered."""
        used = reply.usage.input_tokens + reply.usage.output_tokens
        self.endpoint.pacer.answered(self.started, self.tokens, used, headers)

    def refused(self, error: ProviderError) -> float:
        """The provider asked to slow down: everybody waits.

        Returns:
            For how many seconds.
        """
        self.endpoint.rate_limited += 1
        wait = error.retry_after
        if wait is not None and wait > self.endpoint.patience:
            return wait  # longer than anybody waits: let the others see for themselves
        return self.endpoint.pacer.refused(self.started, self.tokens, error)


def reply_row(model: str, address: str | Mapping[str, Any] | None) -> str:
    """Key of the row that stands as soon as an endpoint has a stored reply."""
    return f"endpoint:{_identity(model, address)}"


def _identity(model: str, address: str | Mapping[str, Any] | None) -> str:
    text = json.dumps([model, address], sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
