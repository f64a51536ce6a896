"""What a run may spend: one account for all its processes, in the store of replies."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from pytest_rubrics.calls.cache import ReplyStore, StoreFullError
from pytest_rubrics.calls.errors import CallError

LOOK_EVERY = 0.1  # seconds between two looks whether a reservation was given back


class NoRoomYetError(Exception):
    """A call does not fit beside the reservations of calls in flight, most of which will cost less.

    Attributes:
        seen: What was spent and reserved at that moment.
    """

    def __init__(self, seen: tuple[int, int]) -> None:
        super().__init__("the reservations of other calls leave no room")
        self.seen = seen


@dataclass(frozen=True, slots=True)
class Budget:
    """The account of a run; amounts are whole billionths of a dollar.

    A call sets the most that it can cost aside, and gives back what it did not cost.

    Attributes:
        store: Where the account is.
        run: Id of the run.
        limit: Most USD that the run may spend, or None.
    """

    store: ReplyStore
    run: str
    limit: float | None

    async def reserve(self, most: float) -> int:
        """Set aside the most that a call can cost, in USD.

        Returns:
            What was set aside, for `settle`; 0 without a limit.

        Raises:
            CallError: It does not fit beside what is spent.
            NoRoomYetError: It does not fit beside what others have set aside; see `change`.
            StoreFullError: The account cannot be written.
        """
        if self.limit is None:
            return 0
        amount, ceiling = _nano(most), _nano(self.limit)
        seen = self._state()
        if await self.store.add(self.account, amount, ceiling=ceiling):
            return amount
        if self._value(self.spent) + amount > ceiling:
            raise CallError("budget", f"the next call could pass --max-cost {self.limit:g} USD")
        raise NoRoomYetError(seen)

    async def settle(self, reserved: int, cost: float | None) -> None:
        """Replace a reservation by the cost in USD; an unknown cost counts as all of it."""
        if not reserved:
            return
        amount = reserved if cost is None else _nano(cost)
        with suppress(StoreFullError):  # it must not cost the reply; launching stops all the same
            # In this order what is spent never looks like more than it is.
            await self.store.add(self.spent, amount)
            await self.store.add(self.account, amount - reserved)

    async def change(self, seen: tuple[int, int], patience: float) -> None:
        """Wait until the account has changed.

        Args:
            seen: What it was.
            patience: Seconds after which the reservations are those of a process that died.

        Raises:
            CallError: It did not change.
        """
        end = time.monotonic() + patience
        while self._state() == seen:
            if time.monotonic() > end:
                raise CallError("budget", "calls that never ended hold what is left of --max-cost")
            await asyncio.sleep(LOOK_EVERY)

    @property
    def account(self) -> str:
        """Key of the row that counts what is spent or reserved."""
        return f"budget:{self.run}"

    @property
    def spent(self) -> str:
        """Key of the row that counts what is spent."""
        return f"spent:{self.run}"

    def _state(self) -> tuple[int, int]:
        return self._value(self.account), self._value(self.spent)

    def _value(self, row: str) -> int:
        value = self.store.get(row)
        return value if isinstance(value, int) else 0


def _nano(usd: float) -> int:
    return round(usd * 1e9)
