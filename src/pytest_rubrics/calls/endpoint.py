"""An address that is called, with its limits and what this run has learned about it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import Slots, Turn
from pytest_rubrics.calls.prices import Price, listed_price
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request

Client = Literal["litellm", "openai"]


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


@dataclass(slots=True)
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
        in_flight, rate_limited: Calls on the wire now, and replies of status 429 so far.
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
    in_flight: int = 0
    rate_limited: int = 0
    closed: CallError | None = None
    has_replies: bool = False
    _wire: Wire | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _last_success: float = 0.0
    _down: bool = False

    @property
    def identity(self) -> str:
        """Short hash of model and address: what facts about the endpoint are stored under."""
        return _identity(self.model, self.address)

    def known_price(self) -> Price | None:
        """The given price, else that of LiteLLM's table, which lists no server of one's own."""
        if self.price is None and self.send is None and self.client == "litellm":
            self.price = listed_price(self.model)
        return self.price

    @property
    def idle(self) -> int:
        """Calls that could start at once."""
        return min(slots.idle for slots in self.slots)

    @property
    def width(self) -> int:
        """Most calls in flight at once."""
        return min(slots.count for slots in self.slots)

    @asynccontextmanager
    async def slot(self, turn: Turn) -> AsyncIterator[None]:
        """Hold one slot of every limit for the length of a block."""
        async with AsyncExitStack() as stack:
            for slots in self.slots:
                await stack.enter_async_context(slots.slot(turn))
            self.in_flight += 1
            try:
                yield
            finally:
                self.in_flight -= 1

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


def reply_row(model: str, address: str | Mapping[str, Any] | None) -> str:
    """Key of the row that stands as soon as an endpoint has a stored reply."""
    return f"endpoint:{_identity(model, address)}"


def _identity(model: str, address: str | Mapping[str, Any] | None) -> str:
    text = json.dumps([model, address], sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
