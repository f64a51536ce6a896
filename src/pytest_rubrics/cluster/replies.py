"""The store of replies for a whole cluster: an actor on the controller's node, and what workers see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pytest_rubrics.calls.budget import Budget
from pytest_rubrics.calls.cache import ReplyStore, StoreError, StoreFullError

if TYPE_CHECKING:
    from pydantic import JsonValue


class Replies:
    """The actor. It knows who holds which claim and which reservation, so that those of the dead can be given back.

    Every method may be called again with the same arguments, as Ray does after a broken connection.

    Args:
        directory: The folder of the store.
        run: Id of the run.
        max_cost: Most USD that the run may spend, or None.
    """

    def __init__(self, directory: Path, run: str, max_cost: float | None) -> None:
        self._messages: list[str] = []
        self._store = ReplyStore(directory, warn=self._messages.append)
        self._budget = Budget(self._store, run, max_cost)
        self._claims: dict[tuple[str, str], asyncio.Task[bool]] = {}  # by holder and key
        self._amounts: dict[str, Counter[str]] = {}  # what each holder has added to each counter
        self._added: dict[str, bool] = {}  # by ticket
        self._gone: set[str] = set()

    async def get(self, key: str) -> JsonValue | None:
        """The value of a row; None where there is none."""
        return self._store.get(key)

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with a prefix."""
        return self._store.keys(prefix)

    async def claim(self, holder: str, key: str) -> bool:
        """Ask to make the call for a key, for a holder."""
        place = (holder, key)
        if place not in self._claims:
            if holder in self._gone:
                raise StoreError("this node was given up as dead")
            self._claims[place] = asyncio.create_task(self._store.claim(key))
        won = False
        try:
            won = await asyncio.shield(self._claims[place])
        finally:
            if not won:
                self._claims.pop(place, None)
        return won

    async def settle(self, holder: str, key: str, rows: Mapping[str, JsonValue]) -> None:
        """Store rows, from whomever they come: a reply is paid. The holder's claim on the key goes."""
        if (holder, key) in self._claims:
            await self._store.settle(key, rows)
            self._claims.pop((holder, key), None)
        else:
            await self._store.put(rows)

    async def release(self, holder: str, key: str) -> None:
        """Give a claim back; nothing happens where the holder has none."""
        claim = self._claims.pop((holder, key), None)
        if claim is not None and await claim:
            await self._store.release(key)

    async def wait(self, key: str) -> None:
        """Return when the claim on a key is gone."""
        await self._store.wait(key)

    async def put(self, rows: Mapping[str, JsonValue]) -> None:
        """Store rows in one transaction."""
        await self._store.put(rows)

    async def add(self, holder: str, ticket: str, key: str, amount: int, ceiling: int | None) -> bool:
        """Add to a counter, once for a ticket."""
        if ticket not in self._added:
            if holder in self._gone:
                raise StoreError("this node was given up as dead")
            self._added[ticket] = await self._store.add(key, amount, ceiling)
            if self._added[ticket]:
                self._amounts.setdefault(holder, Counter())[key] += amount
        return self._added[ticket]

    async def forget(self, holder: str) -> None:
        """Give back what a dead holder held.

        What its calls in flight have cost is unknown, so all that was set aside for them counts as spent.
        """
        self._gone.add(holder)
        for owner, key in list(self._claims):
            if owner == holder:
                await self.release(holder, key)
        amounts = self._amounts.pop(holder, Counter())
        await self._budget.settle(amounts[self._budget.account] - amounts[self._budget.spent], None)

    async def messages(self) -> list[str]:
        """What the store has to say since the last time."""
        said, self._messages[:] = list(self._messages), []
        return said

    async def close(self) -> None:
        """Write what is queued and close the store."""
        await asyncio.to_thread(self._store.close)


@dataclass(slots=True)
class RemoteReplies:
    """The store as a worker sees it: the part of `ReplyStore` that calls need.

    Attributes:
        actor: Handle of `Replies`.
        holder: Name of this worker.
    """

    actor: Any
    holder: str
    _claimed: set[str] = field(default_factory=set)

    def get(self, key: str) -> JsonValue | None:
        """The value of a row; None where there is none."""
        with plain_errors():
            value: JsonValue | None = self.actor.get.remote(key).future().result()
        return value

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin with a prefix."""
        with plain_errors():
            found: list[str] = self.actor.keys.remote(prefix).future().result()
        return found

    async def claim(self, key: str) -> bool:
        """Ask to make the call for a key; see `ReplyStore.claim`."""
        if key in self._claimed:
            return False
        self._claimed.add(key)
        asked = self.actor.claim.remote(self.holder, key)
        won = False
        try:
            with plain_errors():
                won = bool(await asked)
        except asyncio.CancelledError:
            asked.future().add_done_callback(lambda _: self.actor.release.remote(self.holder, key))
            raise
        finally:
            if not won:
                self._claimed.discard(key)
        return won

    async def settle(self, key: str, rows: Mapping[str, JsonValue]) -> None:
        """Store rows and give the claim on a key back."""
        with plain_errors():
            await self.actor.settle.remote(self.holder, key, rows)
        self._claimed.discard(key)

    async def release(self, key: str) -> None:
        """Give a claim back without a reply; nothing happens where this worker holds none."""
        if key in self._claimed:
            with plain_errors():
                await self.actor.release.remote(self.holder, key)
            self._claimed.discard(key)

    async def wait(self, key: str) -> None:
        """Return when the claim on a key is gone. Then look, and claim again."""
        with plain_errors():
            await self.actor.wait.remote(key)

    async def put(self, rows: Mapping[str, JsonValue]) -> None:
        """Store rows in one transaction."""
        with plain_errors():
            await self.actor.put.remote(rows)

    async def add(self, key: str, amount: int, ceiling: int | None = None) -> bool:
        """Add to a counter; see `ReplyStore.add`."""
        with plain_errors():
            added: bool = await self.actor.add.remote(self.holder, uuid4().hex, key, amount, ceiling)
        return added


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise the store's own errors, without Ray's trace around them.

    Raises:
        StoreFullError: The store cannot be reached: what arrives now cannot be stored there.
    """
    from ray.exceptions import RayActorError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        raise error.cause from None
    except RayActorError as error:
        raise StoreFullError("The store of replies on the controller's node cannot be reached.") from error
