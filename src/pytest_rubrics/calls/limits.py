"""How many calls are in flight: slots, given to whoever is needed first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout


@dataclass(slots=True)
class Turn:
    """Place of a task in the queue; a lower rank goes first. The rank drops when a test waits for the task."""

    rank: int


class Slots(Protocol):
    """A number of calls that may be in flight at once."""

    count: int

    @property
    def idle(self) -> int:
        """Free slots that nobody waits for."""

    @property
    def ahead(self) -> int:
        """Calls that are made ready while all slots are held."""

    def slot(self, turn: Turn) -> AbstractAsyncContextManager[None]:
        """Hold a slot for the length of a block."""


@dataclass(slots=True, repr=False)
class LocalSlots:
    """The slots of this process."""

    count: int
    on_release: Callable[[], None]
    _held: int = 0
    _waiting: list[tuple[Turn, asyncio.Future[None]]] = field(default_factory=list)

    @property
    def idle(self) -> int:
        """Free slots that nobody waits for."""
        return self.count - self._held - len(self._waiting)

    @property
    def ahead(self) -> int:
        """Calls that are made ready while all slots are held."""
        return min(16, max(1, self.count // 2))

    @property
    def held(self) -> int:
        """Slots in use."""
        return self._held

    def is_wanted_before(self, turn: Turn) -> bool:
        """Whether somebody of a lower rank waits."""
        return any(waiting.rank < turn.rank for waiting, future in self._waiting if not future.done())

    @asynccontextmanager
    async def slot(self, turn: Turn) -> AsyncIterator[None]:
        """Hold a slot for the length of a block; the waiting task of the lowest rank is served first."""
        await self._acquire(turn)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, turn: Turn) -> None:
        if self._held < self.count:
            self._held += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = (turn, waiter)
        self._waiting.append(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:
                self._release()  # the slot was handed over in the same moment
            raise

    def _release(self) -> None:
        # A waiter that was cancelled stays listed until its task runs again.
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        if waiting:
            entry = min(waiting, key=lambda waiting: waiting[0].rank)
            self._waiting.remove(entry)
            entry[1].set_result(None)  # the slot passes on and stays held
        else:
            self._held -= 1
        self.on_release()


@dataclass(slots=True)
class SharedSlots:
    """Fewer slots than processes: each slot is a lock file, which the kernel frees at any death of its holder."""

    directory: Path
    count: int
    poll: float = 0.05

    @property
    def idle(self) -> int:
        """Never any: without a slot of its own a process only works on what its tests wait for."""
        return 0

    @property
    def ahead(self) -> int:
        """None: see `idle`."""
        return 0

    @asynccontextmanager
    async def slot(self, turn: Turn) -> AsyncIterator[None]:
        """Hold one of the shared slots for the length of a block."""
        lock = await self._acquire()
        try:
            yield
        finally:
            lock.release()

    async def _acquire(self) -> FileLock:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        locks = [FileLock(self.directory / f"{number}.lock") for number in range(self.count)]
        while True:
            for lock in locks:
                with suppress(Timeout):
                    lock.acquire(blocking=False)
                    return lock
            await asyncio.sleep(self.poll)


def share_of(limit: int, worker: int, workers: int) -> int:
    """Slots of one worker: a limit split so that all shares add up to it.

    >>> [share_of(5, worker, 3) for worker in range(3)]
    [2, 2, 1]
    """
    return limit // workers + (1 if worker < limit % workers else 0)
