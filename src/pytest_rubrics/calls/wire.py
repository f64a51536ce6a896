"""Where a request meets the wire: ready to be sent it waits for its slot, and gives it back when the reply has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from pytest_rubrics.calls.endpoint import Launch
from pytest_rubrics.calls.errors import CallError

STEPS_ASIDE = 3  # turns of the loop in which whoever was given the slot wakes, finds a connection and sends


@dataclass(slots=True, repr=False)
class Crossing:
    """One try of a call on the wire.

    Clients need CPU before and after the exchange, and a slot that is held meanwhile is one that nobody uses. What went
    wrong is another matter: then the slot is kept until the gateway knows whether all others have to wait.

    Attributes:
        launch: Its slots.
        check: Raises CallError when no call may start any more.
        limit: Where the seconds of the exchange and of reading the reply are counted, or None.
        refusal: Why the request was not sent, or None; clients wrap errors that they do not know.
        sent_at, came_at: When it was sent, and all of a good reply had come, by `time.perf_counter`, or None.
        was_seen: Whether the request came by in an HTTP session of ours.
    """

    launch: Launch
    check: Callable[[], None]
    limit: asyncio.Timeout | None = None
    refusal: CallError | None = None
    sent_at: float | None = None
    came_at: float | None = None
    was_seen: bool = False

    async def enter(self) -> None:
        """Wait for a slot, unless the call has one; to be called when the request is ready.

        Raises:
            CallError: No call may start any more.
        """
        if self.sent_at is not None and self.came_at is None:
            return
        try:
            await self.launch.take()
            self.check()
        except CallError as error:
            self.refusal = error
            raise
        self.launch.sent()
        self.sent_at, self.came_at = time.perf_counter(), None
        if self.limit is not None:
            self.limit.reschedule(asyncio.get_running_loop().time() + self.launch.endpoint.timeout)

    async def leave(self) -> None:
        """Give the slot back, and let others send; to be called when all of a good reply has come."""
        self.came_at = time.perf_counter()
        await self.launch.free_slots()
        for _ in range(STEPS_ASIDE):
            await asyncio.sleep(0)


# That of the running call, for HTTP sessions which a client uses on its own.
current: ContextVar[Crossing | None] = ContextVar("current", default=None)
