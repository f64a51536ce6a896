"""The calls in flight over a whole cluster: one actor for each limit, and what workers see of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import LocalSlots, Turn

Place = tuple[str, int]  # a holder and the number of its call


class Limiter:
    """The actor: slots as one process has them, and who holds them.

    Every method may be called again with the same arguments, as Ray does after a broken connection.

    Args:
        limit: Calls in flight over all nodes.
    """

    def __init__(self, limit: int) -> None:
        self._slots = LocalSlots(limit, on_release=lambda: None)
        self._calls: dict[Place, tuple[asyncio.Task[None], asyncio.Future[None]]] = {}
        self._gone: set[str] = set()

    async def acquire(self, holder: str, number: int, rank: int) -> None:
        """Return when a call has its slot."""
        if holder in self._gone:
            return  # its calls count for nothing any more
        place = (holder, number)
        if place not in self._calls:
            granted = asyncio.get_running_loop().create_future()
            self._calls[place] = (asyncio.create_task(self._hold(Turn(rank), granted)), granted)
        with suppress(asyncio.CancelledError):
            await self._calls[place][1]

    async def _hold(self, turn: Turn, granted: asyncio.Future[None]) -> None:
        try:
            async with self._slots.slot(turn):
                granted.set_result(None)
                await asyncio.Event().wait()  # until it is cancelled
        finally:
            granted.cancel()

    async def release(self, holder: str, number: int) -> None:
        """Give a slot back, or the place in the queue for it."""
        if call := self._calls.pop((holder, number), None):
            call[0].cancel()

    async def forget(self, holder: str) -> None:
        """Give back all that a dead holder held."""
        self._gone.add(holder)
        for owner, number in list(self._calls):
            if owner == holder:
                await self.release(owner, number)


@dataclass(slots=True)
class RemoteSlots:
    """A limit as a worker sees it.

    Attributes:
        actor: Handle of `Limiter`.
        holder: Name of this worker.
        count: Calls in flight over all nodes.
    """

    actor: Any
    holder: str
    count: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def idle(self) -> int:
        """Not known here; the controller looks ahead, a worker does not."""
        return 0

    @property
    def ahead(self) -> int:
        """None: see `idle`."""
        return 0

    @asynccontextmanager
    async def slot(self, turn: Turn) -> AsyncIterator[None]:
        """Hold a slot for the length of a block."""
        from ray.exceptions import RayActorError

        number = next(self._numbers)
        asked = self.actor.acquire.remote(self.holder, number, turn.rank)
        try:
            try:
                await asked
            except RayActorError as error:
                raise CallError("error", "the limiter on the controller's node cannot be reached") from error
            yield
        finally:
            # Not before the answer, since calls of an actor may overtake one another.
            asked.future().add_done_callback(lambda _: self.actor.release.remote(self.holder, number))
